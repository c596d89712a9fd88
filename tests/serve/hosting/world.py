"""A journal and those who follow it, without processes: messages are late, either side is started
again at any moment, and what was in flight then is lost.

Followers are hosts of views, which are asked, and plain ones, as a gateway is.
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
from driftline.serve.hosting.feeds import DurableUpTo, Feeds, Subscription, Truncated
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
from tests.serve.journal.runs import Run, after_crash, opened

INCARNATION = 1

STORED_BYTES_MAX = 16
"""Larger messages of the journal are spans."""

LONG_S = 1e6
"""A question that waits for so long is answered in any case."""


class Recording:
    """A view that has all outputs, as a list. As of T it answers how many there are below."""

    damage = ""
    clock_s = 0.0
    """The time that it has taken, if that matters."""

    def __init__(self) -> None:
        self.time = 0
        self.since = 0
        self.items: list[Item] = []
        self._frozen = -1
        """As of when it was frozen."""
        self._copied = b""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        assert time > self.time
        assert all(self.time <= item.label[0] < time for item in items)
        self.items += items
        self.time = time

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Mapping[str, object]:
        at = question.get("at", self.time)
        assert isinstance(at, int)
        assert at <= self.time, "asked before it is as of this time"
        return {"at": at, "total": sum(item.label[0] < at for item in self.items)}

    def forget_before(self, since: int) -> None:
        assert since <= self.time

    def do_deferred_work(self) -> None:
        """Nothing is put off."""

    def freeze(self) -> None:
        self._frozen = self.time

    def copy(self) -> None:
        """A copy of the process is made."""
        assert self.time == self._frozen, "outputs were applied to what was frozen"
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


class Channel:
    """The messages in flight between a follower and the journal, both ways."""

    def __init__(self) -> None:
        self.down: deque[bytes] = deque()
        self.up: deque[bytes] = deque()


class World:
    """All of it. What happens when is drawn from `chance`."""

    def __init__(self, run: Run, chance: Random, directory: Path) -> None:
        self.run = run
        self.chance = chance
        self.now = 0.0
        self.durable = 0
        """The journal has said that all below this time is durable, or has given it to be read."""
        self.end = 1 + max((bundle.t_last for bundle in run.bundles), default=-1)
        self.channels: dict[bytes, Channel] = {}
        self.routes = count(1)
        self._directory = directory
        self._path = directory / "0"
        self._crashes = count(1)
        self._largest = 0
        self._answered: dict[str, int] = {}
        """Barrier -> the t_last of which it was told that it is stored."""
        self._open()

    # The journal, and what barriers send it.

    def _open(self) -> None:
        self.server = JournalServer(opened(self._path, 400))
        journal = self.server.journal
        self.feeds = Feeds(self._read)
        journal.followers.append(self.feeds.forward)
        self._reported_time = -1
        groups = {bundle.barrier: bundle.groups for bundle in self.run.bundles}
        for name, its in groups.items():
            self.server.handle(name, FetchLast(name, INCARNATION, its, "", 0))
            last = journal.last(name, its).t_last
            assert last >= self._answered.get(name, -1), "what was answered was not durable"
        self.bundles = deque[Bundle]()
        for bundle in self.run.bundles:
            if bundle.t_last > journal.last(bundle.barrier, bundle.groups).t_last:
                self.bundles.append(bundle)

    def _read(self, since: int) -> Iterator[Span | None]:
        """What the journal gives to be read is durable."""
        for span in self.server.journal.read_by_bundle(since):
            if span is not None:
                self.durable = max(self.durable, span.time)
            yield span

    def crash(self) -> None:
        """The machine of the journal is cut off; what is not durable may be gone, or torn."""
        copy = self._directory / str(next(self._crashes))
        self._path = after_crash(self.server.journal, self._path, copy, self.chance)
        self._lose(self.channels.values())
        self._open()

    def bundle(self) -> None:
        """A bundle comes."""
        if self.bundles:
            bundle = self.bundles.popleft()
            self.server.handle(bundle.barrier, bundle)
            self.deliver_down()

    def turn(self) -> bool:
        """What the process of the journal does in a turn: it stores, tells and reads on. Returns
        whether there is more to read."""
        self.server.tick(self.now)
        self.server.now = self.now
        self.server.turn()
        for _, data in self.server.outbox:
            _, message = decode(data)
            if isinstance(message, BundleStored):
                self._answered[message.barrier] = message.t_last
        self.server.outbox.clear()
        if self.server.durable_time != self._reported_time:
            self._reported_time = self.server.durable_time
            self.durable = max(self.durable, self._reported_time)
            self.feeds.set_durable_time(self._reported_time)
        more = self.feeds.turn(self.now)
        self.deliver_down()
        return more

    def deliver_down(self) -> None:
        """Put messages of the feeds in flight; those to a dead follower are lost."""
        for route, data in self.feeds.outbox:
            self._largest = max(self._largest, len(data))
            if route in self.channels:
                self.channels[route].down.append(data)
        self.feeds.outbox.clear()
        for channel in self.channels.values():
            # Messages that were in flight when a follower timed out are counted apart.
            spans = [len(data) for data in channel.down if len(data) > STORED_BYTES_MAX]
            assert sum(spans) <= 3 * (feeds.WINDOW_BYTES + self._largest), "more than there is room"

    def deliver_up(self) -> None:
        """The journal takes some messages of followers."""
        for route, channel in self.channels.items():
            for _ in range(self.chance.randint(0, 3)):
                if channel.up:
                    self.feeds.take(route, channel.up.popleft(), self.now)

    def _lose(self, channels: Iterable[Channel]) -> None:
        """A side of a channel is gone: some messages have come before, the others never do."""
        for channel in channels:
            for way in (channel.down, channel.up):
                for _ in range(self.chance.randint(0, len(way))):
                    way.pop()

    # Followers.

    def connected(self) -> tuple[bytes, Channel]:
        """A new way to the journal."""
        route = b"%d" % next(self.routes)
        channel = self.channels[route] = Channel()
        return route, channel

    def gone(self, route: bytes) -> None:
        """A follower's process has ended."""
        del self.channels[route]


class Plain:
    """A follower that only takes spans; it is never started again."""

    def __init__(self, world: World, since: int = 0) -> None:
        self.items: list[Item] = []
        self.time = since
        self.heard = 0
        """Messages of the journal."""
        room = max(1, feeds.WINDOW_BYTES // 2)  # it is a stream
        self._following = Subscription("plain", "session", since, room)
        self.route, self._channel = world.connected()

    def step(self, most: int) -> None:
        """Say that it is there, and take some messages."""
        self._channel.up.append(self._following.encode_follow(feeds.RETAINS_NOTHING))
        for _ in range(most):
            if not self._channel.down:
                return
            heard = self._following.decode(self._channel.down.popleft())
            self.heard += 1
            assert not isinstance(heard, Truncated), heard
            if not isinstance(heard, DurableUpTo):
                assert heard.since <= self.time, "a gap"
                self.items += [item for item in heard.items if item.label[0] >= self.time]
                self.time = max(self.time, heard.time)
            if credit := self._following.encode_credit():
                self._channel.up.append(credit)


class Hosted:
    """A view in a process that is killed and started again, and those who ask it."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.answers: Counter[int] = Counter()
        """Number of a question -> how often it was answered."""
        self.asked: dict[int, Request] = {}
        """What was asked, and neither answered nor taken back."""
        self.must: set[int] = set()
        """What has to be answered in the end."""
        self._world = world
        self._numbers = count(1)
        self._sessions = count(1)
        self._checkpoint: bytes | None = None
        self._kept = 0
        self._start()

    def _start(self) -> None:
        self.view = Recording()
        if self._checkpoint is not None:
            self.view.load([self._checkpoint])
        self._kept = self.view.time
        session = f"{self.name}/{next(self._sessions)}"
        following = Subscription(self.name, session, self._kept, feeds.WINDOW_BYTES)
        clock = count()
        parts = (
            self.view,
            following,
            self._kept,
            CheckpointSchedule(1.0, 5),
            Retention(10, lambda: 0.0),
        )
        self.host = ViewHost(self.name, *parts, self._publish, lambda: next(clock) / 1e4)
        self.host.now = self._world.now
        self.route, self._channel = self._world.connected()
        for asked in self.asked.values():  # as whoever asked does, as soon as it is there again
            self.host.handle_client_message(b"asker", encode_request(asked))

    def kill(self) -> None:
        """The process is killed, and started again; what a copy does then is not done."""
        self._world.gone(self.route)
        self._start()

    def step(self, most: int) -> None:
        """Take some messages, and do a turn, in which others come before a copy is made."""
        host, channel = self.host, self._channel
        host.tick(self._world.now)
        host.now = self._world.now
        self._hear(most)
        worked = host.job is not None
        host.turn()
        if host.job is not None and not worked:
            assert self.view.time <= self._world.durable, "a checkpoint ahead of what is durable"
            self._hear(most)
            self.view.copy()
            host.unfreeze()
        channel.up.extend(host.to_journal)
        host.to_journal.clear()
        for _, data in host.answers:
            message = decode_answer(data)
            if isinstance(message, ViewTime):
                assert message.time <= self.view.time, "a T that the view does not have"
            else:
                self._answered(*message)
        host.answers.clear()

    def _hear(self, most: int) -> None:
        host, down = self.host, self._channel.down
        for _ in range(most):
            if down and not host.busy:
                host.handle_journal_message(down.popleft())
        assert host.truncated is None, host.truncated

    def worked(self, well: bool) -> None:
        """The copy ends, if there is one."""
        work = self.host.job
        if work is not None:
            if well:
                work.do()
            self.host.finish_job(well)

    def _publish(self) -> None:
        self._checkpoint = b"".join(self.view.save())

    # Those who ask.

    def ask(self) -> None:
        """Ask, as of now, of a time, or after one; some do not wait for long."""
        chance, number = self._world.chance, next(self._numbers)
        question: dict[str, object] = {"what": "count"}
        if chance.random() < 0.5:
            question["at"] = chance.randint(0, self._world.end)
        patient = chance.random() < 0.7
        within_s = LONG_S if patient else 1.0
        asked = Request(number, question, chance.randint(0, self._world.end), within_s)
        if patient:
            self.must.add(number)
        self.asked[number] = asked
        self._take(asked)
        if chance.random() < 0.2:
            self._take(asked)  # it was asked again, as the connection was lost for a moment

    def take_back(self) -> None:
        """Somebody does not wait any more."""
        if self.asked:
            number = self._world.chance.choice(sorted(self.asked))
            del self.asked[number]
            self.must.discard(number)
            self._take(Cancel(number))

    def _take(self, asked: Request | Cancel) -> None:
        self.host.handle_client_message(b"asker", encode_request(asked))

    def _answered(self, number: int, answer: Mapping[str, object] | ApiError) -> None:
        self.answers[number] += 1
        asked = self.asked.pop(number, None)
        if asked is None:
            return  # it was taken back, too late
        if isinstance(answer, ApiError):
            assert answer.code == "unavailable"
            assert number not in self.must, answer
            return
        self.must.discard(number)
        at = answer["at"]
        assert isinstance(at, int)
        assert at == asked.question.get("at", at)
        assert self.view.time >= max(at, asked.after)
        assert answer["total"] == len(self._world.run.below(at))
