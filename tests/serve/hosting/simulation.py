"""Simulation of a journal and its followers without processes: messages are delayed, each side
restarts at any moment, and messages in flight are lost then.

Followers are hosts of views, which also answer queries, and plain followers, as a gateway is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from random import Random

from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.messages import Bundle, BundleStored, FetchLast, decode
from driftline.serve.errors import ApiError
from driftline.serve.hosting import feeds
from driftline.serve.hosting.feeds import DurableUpTo, FeedEnded, Feeds, Subscription
from driftline.serve.hosting.host import CheckpointSchedule, ViewHost
from driftline.serve.hosting.journal_process import JournalServer
from driftline.serve.hosting.view_client import (
    Cancel,
    Request,
    ViewTime,
    decode_answer,
    encode_request,
)
from driftline.serve.journal import Span
from driftline.serve.views.checkpoint import Retention
from driftline.serve.views.hosted import BackgroundJob, PauseHook, Question, no_pause
from tests.serve.journal.runs import SimulatedRun, copy_after_crash, open_journal

INCARNATION = 1

CONTROL_MESSAGE_BYTES_MAX = 16
"""Larger messages of the journal are spans."""

PATIENT_TIMEOUT_S = 1e6
"""With this timeout, a request is always answered."""


class RecordingView:
    """View that keeps all outputs in a list; as of T it answers with the number below T."""

    damage = ""
    clock_s = 0.0
    """Time that the view has used; only some subclasses advance it."""

    def __init__(self) -> None:
        self.time = 0
        self.since = 0
        self.items: list[Item] = []
        self._frozen = -1
        """T at the last freeze."""
        self._copied = b""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        assert time > self.time
        assert all(self.time <= item.label[0] < time for item in items)
        self.items += items
        self.time = time

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Mapping[str, object]:
        at = question.get("at", self.time)
        assert isinstance(at, int)
        assert at <= self.time, "asked before the view has reached this T"
        return {"at": at, "total": sum(item.label[0] < at for item in self.items)}

    def forget_before(self, since: int) -> None:
        assert since <= self.time

    def do_deferred_work(self) -> None:
        """Do nothing: this view defers no work."""

    def freeze(self) -> None:
        self._frozen = self.time

    def copy(self) -> None:
        """Copy the frozen state, as the fork of a process does."""
        assert self.time == self._frozen, "outputs were applied to a frozen view"
        items = [(item.label, item.sink, item.value) for item in self.items]
        self._copied = pack((self.time, items))

    def save(self) -> Iterator[bytes]:
        yield self._copied

    def mark_saved(self) -> None:
        pass

    def load(self, parts: Iterable[bytes]) -> None:
        match unpack(b"".join(parts)):
            case (int(time), items):
                self.time = time
                self.items = [Item(*each) for each in items]  # type: ignore[attr-defined]

    def next_job(self) -> BackgroundJob | None:
        return None

    def figures(self) -> Mapping[str, float]:
        return {}


class FollowerChannel:
    """Messages in flight between a follower and the journal, in both directions."""

    def __init__(self) -> None:
        self.down: deque[bytes] = deque()
        self.up: deque[bytes] = deque()


class JournalSimulation:
    """Journal, its barriers and channels to followers; `rng` draws the schedule."""

    def __init__(self, run: SimulatedRun, rng: Random, directory: Path) -> None:
        self.run = run
        self.rng = rng
        self.now = 0.0
        self.durable_time = 0
        """Largest time that the journal reported as durable or let a follower read up to."""
        self.end_time = 1 + max((bundle.t_last for bundle in run.bundles), default=-1)
        self.channels: dict[bytes, FollowerChannel] = {}
        self.routes = count(1)
        self._directory = directory
        self._path = directory / "0"
        self._crash_numbers = count(1)
        self._largest_message_bytes = 0
        self._acknowledged: dict[str, int] = {}
        """Barrier -> t_last that the journal acknowledged to it."""
        self._open()

    # The journal and its barriers.

    def _open(self) -> None:
        self.server = JournalServer(open_journal(self._path, 400))
        journal = self.server.journal
        self.feeds = Feeds(self._read)
        journal.followers.append(self.feeds.forward)
        self._reported_time = -1
        groups = {bundle.barrier: bundle.groups for bundle in self.run.bundles}
        for name, groups_of_barrier in groups.items():
            self.server.handle(name, FetchLast(name, INCARNATION, groups_of_barrier, "", 0))
            last = journal.last(name, groups_of_barrier).t_last
            assert last >= self._acknowledged.get(name, -1), (
                "an acknowledged bundle was not durable"
            )
        self.bundles = deque[Bundle]()
        for bundle in self.run.bundles:
            if bundle.t_last > journal.last(bundle.barrier, bundle.groups).t_last:
                self.bundles.append(bundle)

    def _read(self, since: int) -> Iterator[Span | None]:
        """Read the journal for a feed; everything that it returns is durable."""
        for span in self.server.journal.read_by_bundle(since):
            if span is not None:
                self.durable_time = max(self.durable_time, span.time)
            yield span

    def crash(self) -> None:
        """Cut the power of the journal: data that is not durable may be lost or torn."""
        copy = self._directory / str(next(self._crash_numbers))
        self._path = copy_after_crash(self.server.journal, self._path, copy, self.rng)
        self._drop_messages(self.channels.values())
        self._open()

    def deliver_bundle(self) -> None:
        """Deliver the next bundle to the journal."""
        if self.bundles:
            bundle = self.bundles.popleft()
            self.server.handle(bundle.barrier, bundle)
            self.deliver_down()

    def turn(self) -> bool:
        """Run a turn of the journal process; return whether there is more to read."""
        self.server.tick(self.now)
        self.server.now = self.now
        self.server.turn()
        for _, data in self.server.outbox:
            _, message = decode(data)
            if isinstance(message, BundleStored):
                self._acknowledged[message.barrier] = message.t_last
        self.server.outbox.clear()
        if self.server.durable_time != self._reported_time:
            self._reported_time = self.server.durable_time
            self.durable_time = max(self.durable_time, self._reported_time)
            self.feeds.set_durable_time(self._reported_time)
        more = self.feeds.turn(self.now)
        self.deliver_down()
        return more

    def deliver_down(self) -> None:
        """Put messages of the feeds in flight; drop those to a dead follower."""
        for route, data in self.feeds.outbox:
            self._largest_message_bytes = max(self._largest_message_bytes, len(data))
            if route in self.channels:
                self.channels[route].down.append(data)
        self.feeds.outbox.clear()
        for channel in self.channels.values():
            # Up to 3 windows: messages from before a timeout are not part of the current window.
            spans = [len(data) for data in channel.down if len(data) > CONTROL_MESSAGE_BYTES_MAX]
            assert sum(spans) <= 3 * (feeds.WINDOW_BYTES + self._largest_message_bytes), (
                "more bytes in flight than the window allows"
            )

    def deliver_up(self) -> None:
        """Deliver some messages of followers to the journal."""
        for route, channel in self.channels.items():
            for _ in range(self.rng.randint(0, 3)):
                if channel.up:
                    self.feeds.take(route, channel.up.popleft(), self.now)

    def _drop_messages(self, channels: Iterable[FollowerChannel]) -> None:
        """Drop a random number of the newest messages in flight, as one end has failed."""
        for channel in channels:
            for queue in (channel.down, channel.up):
                for _ in range(self.rng.randint(0, len(queue))):
                    queue.pop()

    # Followers.

    def connect(self) -> tuple[bytes, FollowerChannel]:
        """Open a channel to the journal."""
        route = b"%d" % next(self.routes)
        channel = self.channels[route] = FollowerChannel()
        return route, channel

    def disconnect(self, route: bytes) -> None:
        """Close the channel of a follower whose process has exited."""
        del self.channels[route]


class StreamFollower:
    """Follower that only receives spans, as a gateway does; it never restarts."""

    def __init__(self, simulation: JournalSimulation, since: int = 0) -> None:
        self.items: list[Item] = []
        self.time = since
        self.message_count = 0
        """Number of messages received from the journal."""
        window_bytes = max(1, feeds.WINDOW_BYTES // 2)  # the feeds then treat it as a stream
        self._subscription = Subscription("plain", "session", since, window_bytes)
        self.route, self._channel = simulation.connect()

    def step(self, messages_max: int) -> None:
        """Send a follow message, and receive some messages."""
        self._channel.up.append(self._subscription.encode_follow(feeds.RETAINS_NOTHING))
        for _ in range(messages_max):
            if not self._channel.down:
                return
            message = self._subscription.decode(self._channel.down.popleft())
            self.message_count += 1
            assert not isinstance(message, FeedEnded), message
            if not isinstance(message, DurableUpTo):
                assert message.since <= self.time, "a gap"
                self.items += [item for item in message.items if item.label[0] >= self.time]
                self.time = max(self.time, message.time)
            if credit := self._subscription.encode_credit():
                self._channel.up.append(credit)


class RestartableView:
    """Host of a view whose process is killed and restarted, and the client that queries it."""

    def __init__(self, simulation: JournalSimulation, name: str) -> None:
        self.name = name
        self.answer_counts: Counter[int] = Counter()
        """Request number -> number of answers."""
        self.pending: dict[int, Request] = {}
        """Requests that are neither answered nor cancelled."""
        self.required: set[int] = set()
        """Numbers of the requests that must get an answer in the end."""
        self._simulation = simulation
        self._question_numbers = count(1)
        self._session_numbers = count(1)
        self._checkpoint: bytes | None = None
        self._checkpoint_time = 0
        self._start()

    def _start(self) -> None:
        self.view = RecordingView()
        if self._checkpoint is not None:
            self.view.load([self._checkpoint])
        self._checkpoint_time = self.view.time
        session = f"{self.name}/{next(self._session_numbers)}"
        subscription = Subscription(self.name, session, self._checkpoint_time, feeds.WINDOW_BYTES)
        clock = count()
        parts = (
            self.view,
            subscription,
            self._checkpoint_time,
            CheckpointSchedule(1.0, 5),
            Retention(10, lambda: 0.0),
        )
        self.host = ViewHost(self.name, *parts, self._publish, lambda: next(clock) / 1e4)
        self.host.now = self._simulation.now
        self.route, self._channel = self._simulation.connect()
        # The client sends pending requests again after a reconnect.
        for request in self.pending.values():
            self.host.handle_client_message(b"client", encode_request(request))

    def kill(self) -> None:
        """Kill the process with its forked job, and restart it."""
        self._simulation.disconnect(self.route)
        self._start()

    def step(self, messages_max: int) -> None:
        """Receive some messages and run a turn; more messages arrive between freeze and copy."""
        host, channel = self.host, self._channel
        host.tick(self._simulation.now)
        host.now = self._simulation.now
        self._receive(messages_max)
        had_job = host.job is not None
        host.turn()
        if host.job is not None and not had_job:
            assert self.view.time <= self._simulation.durable_time, (
                "a checkpoint ahead of the durable time"
            )
            self._receive(messages_max)
            self.view.copy()
            host.unfreeze()
        channel.up.extend(host.to_journal)
        host.to_journal.clear()
        for _, data in host.answers:
            message = decode_answer(data)
            if isinstance(message, ViewTime):
                assert message.time <= self.view.time, "reported a T that the view has not reached"
            else:
                self._check_answer(*message)
        host.answers.clear()

    def _receive(self, messages_max: int) -> None:
        host, down = self.host, self._channel.down
        for _ in range(messages_max):
            if down and not host.busy:
                host.handle_journal_message(down.popleft())
        assert host.truncated is None, host.truncated

    def finish_job(self, succeeds: bool) -> None:
        """Finish the forked job, if there is one."""
        job = self.host.job
        if job is not None:
            if succeeds:
                job.do()
            self.host.finish_job(succeeds)

    def _publish(self) -> None:
        self._checkpoint = b"".join(self.view.save())

    # The client.

    def ask(self) -> None:
        """Send a request for the newest T, at a T or after a T; some have a short timeout."""
        rng, number = self._simulation.rng, next(self._question_numbers)
        question: dict[str, object] = {"what": "count"}
        if rng.random() < 0.5:
            question["at"] = rng.randint(0, self._simulation.end_time)
        is_patient = rng.random() < 0.7
        timeout_s = PATIENT_TIMEOUT_S if is_patient else 1.0
        request = Request(number, question, rng.randint(0, self._simulation.end_time), timeout_s)
        if is_patient:
            self.required.add(number)
        self.pending[number] = request
        self._send(request)
        if rng.random() < 0.2:
            self._send(request)  # a duplicate, as after a short disconnect

    def cancel_one(self) -> None:
        """Cancel a random pending request."""
        if self.pending:
            number = self._simulation.rng.choice(sorted(self.pending))
            del self.pending[number]
            self.required.discard(number)
            self._send(Cancel(number))

    def _send(self, message: Request | Cancel) -> None:
        self.host.handle_client_message(b"client", encode_request(message))

    def _check_answer(self, number: int, answer: Mapping[str, object] | ApiError) -> None:
        self.answer_counts[number] += 1
        request = self.pending.pop(number, None)
        if request is None:
            return  # cancelled after the answer was sent
        if isinstance(answer, ApiError):
            assert answer.code == "unavailable"
            assert number not in self.required, answer
            return
        self.required.discard(number)
        at = answer["at"]
        assert isinstance(at, int)
        assert at == request.question.get("at", at)
        assert self.view.time >= max(at, request.after)
        assert answer["total"] == len(self._simulation.run.below(at))
