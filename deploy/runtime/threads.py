"""Threads beside the loop of a process: one for its disk, one for each role that it hosts.

A thread never changes the loop's data: it queues its result, and *wakes* the loop with an empty
message to the inbox of a role of the loop; the loop then processes the result. An unexpected
exception ends the thread, and then the process (`ThreadDied`).
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
from driftline.engine.events import FailureLog, event_fields, log
from driftline.engine.wire.role import IOJob, Role

SLOW_S, JOB_POLL_S = 10.0, 1.0
"""Time that a job may take before a warning, and interval between checks, in seconds."""

SLOW = "slow disk"
"""Key in the obstacles of a role while one of its jobs is slow."""

JobExecutor = Callable[[IOJob], object]
"""Executes a job in the thread of a `Worker`; returns its result."""


class ThreadDied(Exception):
    """An unexpected exception ended a thread; its process ends too, with this text."""

    @staticmethod
    def of(error: BaseException, during: str) -> ThreadDied:
        """Return the exception that the loop raises once `error` has ended a thread.

        `error`: any exception, even SystemExit; `during`: the work of the thread.
        """
        died = ThreadDied(f"the thread for {during} died: {type(error).__name__}: {error}")
        died.__cause__ = error
        return died


class Worker:
    """Thread that executes jobs in order, and wakes the loop after each."""

    wake_socket: zmq.Socket[bytes]
    """Socket that wakes the loop."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Role, IOJob, JobExecutor] | None] = queue.SimpleQueue()
        self._results: deque[tuple[Role, IOJob, object]] = deque()
        self._thread: threading.Thread | None = None
        self._failures: dict[tuple[str, str], FailureLog] = {}
        """(role, kind of job) -> log of its failures, while it fails."""
        self._running: tuple[float, Role, IOJob] | None = None
        """Start time, role and job of the running job."""
        self._warn_after_s = SLOW_S
        self.next_check_at = 0.0
        """When to call `warn_if_slow` next (seconds, monotonic)."""

    def put(self, role: Role, job: IOJob, work: JobExecutor) -> None:
        """Queue a job of a role; `work`: executes it."""
        if self._thread is None:
            thread_name = threading.current_thread().name
            self._thread = threading.Thread(target=self._loop, name=thread_name, daemon=True)
            self._thread.start()
        self._tasks.put((role, job, work))

    def warn_if_slow(self, now: float) -> None:
        """Log a job that takes long, and report it as an obstacle of its role: a frozen disk
        raises no error."""
        self.next_check_at = now + JOB_POLL_S
        running = self._running
        if running is None or now - running[0] < SLOW_S:
            return
        started_at, role, job = running
        elapsed_s = now - started_at
        text = f"{role.name} has waited for its disk for {elapsed_s:.0f} s, to {job.what}"
        role.obstacles[SLOW] = text
        if elapsed_s >= self._warn_after_s:
            self._warn_after_s = 2 * elapsed_s
            fields = event_fields(
                "job-slow", name=role.name, job=type(job).__name__, seconds=elapsed_s
            )
            log.warning("%s: is it frozen, or overloaded?", text, extra=fields)

    def deliver_results(self) -> None:
        """Pass the results of jobs to their roles. Raises ThreadDied."""
        while self._results:
            role, job, result = self._results.popleft()
            if isinstance(result, ThreadDied):
                raise result
            if role.obstacles.pop(SLOW, None) is not None:
                self._warn_after_s = SLOW_S
                fields = event_fields("job-slow-over", name=role.name, job=type(job).__name__)
                log.warning("%s can %s again", role.name, job.what, extra=fields)
            self._log_outcome(role, job, result)
            role.on_job_done(job, result)

    def _log_outcome(self, role: Role, job: IOJob, result: object) -> None:
        """Log when jobs of a kind start to fail, while they fail, and when they succeed again."""
        name, kind = role.name, type(job).__name__
        if isinstance(result, Disconnected):
            return  # already logged
        if isinstance(result, Unavailable):
            failures = self._failures.setdefault((name, kind), FailureLog("job-failed"))
            text = f"{name} cannot {job.what}: {result}; retrying"
            failures.record_failure(monotonic(), text, name=name, job=kind)
        elif (name, kind) in self._failures:
            failures = self._failures.pop((name, kind))
            failures.record_success(
                monotonic(), f"{name} can {job.what} again", name=name, job=kind
            )

    def stop(self) -> None:
        """Finish all queued jobs, and end the thread; wait at most 10 s."""
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _loop(self) -> None:
        while (task := self._tasks.get()) is not None:
            role, job, work = task
            self._running = monotonic(), role, job
            try:
                result: object = work(job)
            except DriftlineError as error:
                result = error
            except BaseException as error:
                result = ThreadDied.of(error, f"{type(job).__name__} of {role.name}")
            self._running = None
            self._results.append((role, job, result))
            self.wake_socket.send(b"")
            if isinstance(result, ThreadDied):
                return


class Calls:
    """Queue of functions that the loop calls on behalf of other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self.wake_socket: zmq.Socket[bytes] | None = None
        """Socket that wakes the loop; None before the loop has an inbox."""

    def add(self, call: Callable[[], None]) -> None:
        """Let the loop call a function in its next turn. Thread-safe, also after the loop ended."""
        with self._lock, suppress(zmq.ZMQError):
            self._calls.append(call)
            if self.wake_socket is not None and not self.wake_socket.closed:
                self.wake_socket.send(b"", zmq.NOBLOCK)

    def run_all(self) -> None:
        """In the loop: call the queued functions."""
        while self._calls:
            self._calls.popleft()()


class HostedRole:
    """Role in a thread of its own that talks to one partner."""

    def __init__(
        self, role: Role, partner: Role, wake_socket: zmq.Socket[bytes], at_end: Callable[[], None]
    ) -> None:
        """`wake_socket`: wakes the partner's loop; `at_end`: the thread calls it after `stop`, once
        all queued messages are processed."""
        self._at_end = at_end
        self._role = role
        self._partner = partner
        self._wake_socket = wake_socket
        self._answers: deque[bytes] = deque()
        self._tasks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._died: ThreadDied | None = None
        self._tick_at = 0.0
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        """Queue a message for the role."""
        self._tasks.put(data)

    def deliver_answers(self) -> None:
        """In the loop: pass the role's messages to its partner. Raises ThreadDied."""
        while self._answers:
            self._partner.receive(self._answers.popleft())
        if self._died is not None:
            raise self._died

    def stop(self) -> None:
        """Process all queued messages, then end; wait at most 10 s."""
        self._tasks.put(None)
        self._thread.join(timeout=10)

    def _next(self) -> bytes | None:
        """Return the next message; None at the end. Tick the role while waiting."""
        while True:
            now = monotonic()
            if now >= self._tick_at:
                self._role.now = now
                self._tick_at = self._role.tick(now)
            with suppress(queue.Empty):
                return self._tasks.get(timeout=max(0.0, self._tick_at - now))

    def _loop(self) -> None:
        role = self._role
        try:
            while (data := self._next()) is not None:
                role.now = monotonic()
                role.receive(data)
                for _, answer in role.outbox:
                    self._answers.append(answer)
                if role.outbox:
                    role.outbox.clear()
                    self._wake_socket.send(b"")
            self._at_end()
        except BaseException as error:
            self._died = ThreadDied.of(error, role.name)
            self._wake_socket.send(b"")
