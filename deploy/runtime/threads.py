"""The threads beside the loop of a process: one for its disk, one for each party that it hosts.

A thread never touches what the loop works with: it leaves what it has made, and *rings*, with an
empty message to the inbox of a party of the loop, which then takes it. Whatever exception is not
ours ends the thread, and then the process (`ThreadDied`).
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import zmq

from driftline.engine.errors import Disconnected, DriftlineError, Unavailable
from driftline.engine.events import Trouble, about, log
from driftline.engine.wire.party import DurableJob, Role

SLOW_S, LOOK_EVERY_S = 10.0, 1.0
"""How long a job may take before that is told, in seconds; how often it is looked at."""

SLOW = "slow disk"
"""The key of a job that takes long among the obstacles of its party."""

CarryOut = Callable[[DurableJob], object]


class ThreadDied(Exception):
    """An exception that is not ours ended a thread: its process ends, too, with this text."""

    @staticmethod
    def of(error: BaseException, during: str) -> ThreadDied:
        """The exception that the loop raises for any exception of a thread, also a SystemExit."""
        died = ThreadDied(f"the thread for {during} died: {type(error).__name__}: {error}")
        died.__cause__ = error
        return died


class Worker:
    """A thread that carries out jobs in order, and wakes the loop with an empty message."""

    ring: zmq.Socket[bytes]
    """Sends the empty messages."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Role, DurableJob, CarryOut] | None] = (
            queue.SimpleQueue()
        )
        self._results: deque[tuple[Role, DurableJob, object]] = deque()
        self._thread: threading.Thread | None = None
        self._trouble: dict[tuple[str, str], Trouble] = {}
        """(party, kind of job) -> its failures."""
        self._begun: tuple[float, Role, DurableJob] | None = None
        """The job under way, and when it was begun."""
        self._tell_after = SLOW_S
        self.look_at = 0.0
        """When `look` is to be called."""

    def put(self, party: Role, job: DurableJob, work: CarryOut) -> None:
        """Add a job of a party. `work` carries it out."""
        if self._thread is None:
            ours = threading.current_thread().name
            self._thread = threading.Thread(target=self._loop, name=ours, daemon=True)
            self._thread.start()
        self._tasks.put((party, job, work))

    def look(self, now: float) -> None:
        """Tell of a job that takes long: a disk that is frozen gives no error."""
        self.look_at = now + LOOK_EVERY_S
        begun = self._begun
        if begun is None or now - begun[0] < SLOW_S:
            return
        since, party, job = begun
        took = now - since
        text = f"{party.name} has waited for its disk for {took:.0f} s, to {job.what}"
        party.obstacles[SLOW] = text
        if took >= self._tell_after:
            self._tell_after = 2 * took
            told = about("job-slow", name=party.name, job=type(job).__name__, seconds=took)
            log.warning("%s: is it frozen, or overloaded?", text, extra=told)

    def report(self) -> None:
        """Tell parties the results of their jobs. Raises ThreadDied."""
        while self._results:
            party, job, result = self._results.popleft()
            if isinstance(result, ThreadDied):
                raise result
            if party.obstacles.pop(SLOW, None) is not None:
                self._tell_after = SLOW_S
                told = about("job-slow-over", name=party.name, job=type(job).__name__)
                log.warning("%s can %s again", party.name, job.what, extra=told)
            self._tell(party, job, result)
            party.done(job, result)

    def _tell(self, party: Role, job: DurableJob, result: object) -> None:
        """Tell when jobs of a kind begin to fail, while they do, and when they do no more."""
        name, kind = party.name, type(job).__name__
        if isinstance(result, Disconnected):
            return  # it has been told
        if isinstance(result, Unavailable):
            trouble = self._trouble.setdefault((name, kind), Trouble("job-failed"))
            text = f"{name} cannot {job.what}: {result}; trying again"
            trouble.failed(monotonic(), text, name=name, job=kind)
        elif (name, kind) in self._trouble:
            trouble = self._trouble.pop((name, kind))
            trouble.over(monotonic(), f"{name} can {job.what} again", name=name, job=kind)

    def stop(self) -> None:
        """Finish all jobs."""
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _loop(self) -> None:
        while (task := self._tasks.get()) is not None:
            party, job, work = task
            self._begun = monotonic(), party, job
            try:
                result: object = work(job)
            except DriftlineError as error:
                result = error
            except BaseException as error:
                result = ThreadDied.of(error, f"{type(job).__name__} of {party.name}")
            self._begun = None
            self._results.append((party, job, result))
            self.ring.send(b"")
            if isinstance(result, ThreadDied):
                return


class Calls:
    """What other threads want the loop to do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self.ring: zmq.Socket[bytes] | None = None
        """Wakes the loop."""

    def add(self, call: Callable[[], None]) -> None:
        """Let the loop make a call soon. Any thread may call this, also after the loop's end."""
        with self._lock, suppress(zmq.ZMQError):
            self._calls.append(call)
            if self.ring is not None and not self.ring.closed:
                self.ring.send(b"", zmq.NOBLOCK)

    def make(self) -> None:
        """In the loop: make the calls."""
        while self._calls:
            self._calls.popleft()()


class LocalParty:
    """A party in a thread of its own, which talks to one partner."""

    def __init__(
        self, party: Role, partner: Role, ring: zmq.Socket[bytes], at_end: Callable[[], None]
    ) -> None:
        """`ring`: wakes the loop of the partner; `at_end`: is called by the thread as it ends."""
        self._at_end = at_end
        self._party = party
        self._partner = partner
        self._ring = ring
        self._answers: deque[bytes] = deque()
        self._tasks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._died: ThreadDied | None = None
        self._tick_at = 0.0
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        """Send it a message."""
        self._tasks.put(data)

    def report(self) -> None:
        """Hand its partner what it has said. Raises ThreadDied if it cannot go on."""
        while self._answers:
            self._partner.receive(self._answers.popleft())
        if self._died is not None:
            raise self._died

    def stop(self) -> None:
        """Let it work off all messages, and end."""
        self._tasks.put(None)
        self._thread.join(timeout=10)

    def _next(self) -> bytes | None:
        """The next message, None at the end. Until it comes the party has its ticks."""
        while True:
            now = monotonic()
            if now >= self._tick_at:
                self._party.now = now
                self._tick_at = self._party.tick(now)
            with suppress(queue.Empty):
                return self._tasks.get(timeout=max(0.0, self._tick_at - now))

    def _loop(self) -> None:
        party = self._party
        try:
            while (data := self._next()) is not None:
                party.now = monotonic()
                party.receive(data)
                for _, answer in party.outbox:
                    self._answers.append(answer)
                if party.outbox:
                    party.outbox.clear()
                    self._ring.send(b"")
            self._at_end()
        except BaseException as error:
            self._died = ThreadDied.of(error, party.name)
            self._ring.send(b"")
