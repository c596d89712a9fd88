"""The host of a view: keeps it up to date, answers questions, and schedules its checkpoints.

Input: spans and durable times of the journal, questions of clients, and the exits of *copies*:
forked copies of this process, which run background jobs. Output: answers, the view's T, follow
messages and credit for the journal, and jobs for copies.

Invariants: a question is answered once, as of its `at` or the current T, after the view has reached
`at` and `after`. A client receives the view's T before it receives answers as of that T. Clients
share the time for answers: a long answer runs in slices, and the host serves other clients between
two slices. A checkpoint contains only outputs that are durable in the journal: it begins when the
view's T is not above the durable time, and no span is applied until the copy is forked. One copy
runs at a time. Spans and questions alternate, and no span is applied during an answer. Work that no
answer needs waits until the pending answers are sent, but for at most `DEFERRALS_MAX` turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from heapq import heapify, heappop, heappush

from msgspec import Struct

from driftline.engine.errors import DriftlineError, MalformedMessage, PayloadError
from driftline.engine.events import FailureLog, event_fields, log
from driftline.engine.texts import format_time
from driftline.engine.wire.role import Role
from driftline.serve.errors import ApiError
from driftline.serve.hosting.feeds import FOLLOW_EVERY_S, DurableUpTo, FeedEnded, Subscription
from driftline.serve.hosting.view_client import (
    Cancel,
    Request,
    decode_request,
    encode_answer,
    encode_view_time,
)
from driftline.serve.journal import Span
from driftline.serve.views.checkpoint import Retention
from driftline.serve.views.hosted import BackgroundJob, HostedView, Question, apply_span

SLICE_S = 0.005
"""Time in seconds for answers before spans are applied again. A long answer runs in slices of about
this length."""

NESTING_MAX = 2
"""How deep answers may interrupt each other; an answer at this depth is not interrupted."""

APPLY_S = 0.01
"""Time in seconds for applying spans before questions are answered again."""

APPLY_ITEMS = 4
"""Number of outputs that are applied at once; more if outputs share the time of the last one."""

DEFERRALS_MAX = 2
"""Largest number of consecutive turns that defer work that no answer needs."""

PENDING_MAX = 10_000
"""Limit of pending questions; further questions are rejected."""

STATUS = "status"
"""The `what` of the question that the host itself answers, instead of the view."""

CHECKPOINT_RETRY_S = 10.0
"""Back-off after a failed checkpoint, in seconds."""

CALM_S = 1.0
"""After this many seconds without outputs, the host writes a checkpoint ahead of its schedule, if
it has applied at least `CHECKPOINT_ITEMS_MIN` outputs since the last checkpoint."""

CHECKPOINT_ITEMS_MIN = 500
"""Fewer outputs than this are not worth a checkpoint before `CheckpointSchedule.seconds` have
passed: a restart applies them again quickly."""


class CheckpointSchedule(Struct, frozen=True):
    """The interval between checkpoints, in seconds and in outputs: whichever ends first.

    During a bulk load the host uses a larger number of outputs than `items`.
    """

    seconds: float
    items: int


class FairQueue:
    """Fair queue of answerable questions: the client that has used the least time is next.

    A client that is new or had no waiting question starts with at least the used time of the client
    served last, so idle time earns no credit. A question is identified by (route of the connection,
    number).

    >>> queue = FairQueue()
    >>> for number in range(3):
    ...     queue.put("heavy", (b"", number))
    >>> queue.pop(), queue.charge("heavy", 0.5)
    ((b'', 0), None)
    >>> queue.put("cheap", (b"", 3))
    >>> queue.has_before("heavy")
    True
    >>> queue.pop(), queue.charge("cheap", 0.6), queue.pop()
    ((b'', 3), None, (b'', 1))
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[bytes, int]]] = {}
        self._used_s: dict[str, float] = {}
        """Client -> its used time; a client without an entry has used `_min_used_s`."""
        self._min_used_s = 0.0
        """The used time of the client served last, before it was served."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, client: str, key: tuple[bytes, int]) -> None:
        """Append a question to the queue of its client."""
        if client not in self._waiting:
            self._waiting[client] = deque()
            self._used_s[client] = max(self._min_used_s, self._used_s.get(client, 0.0))
        self._waiting[client].append(key)

    def pop(self) -> tuple[bytes, int]:
        """Remove and return the next question. Precondition: the queue is not empty."""
        client = self._next
        self._min_used_s = self._used_s[client]
        waiting = self._waiting[client]
        key = waiting.popleft()
        if not waiting:
            del self._waiting[client]
        return key

    @property
    def _next(self) -> str:
        return min(self._waiting, key=self._used_s.__getitem__)

    def has_before(self, client: str) -> bool:
        """Return whether a waiting client has used less time than `client`, served right now."""
        return bool(self._waiting) and self._used_s[self._next] < self._used(client)

    def _used(self, client: str) -> float:
        return self._used_s.get(client, self._min_used_s)

    def charge(self, client: str, seconds: float) -> None:
        """Charge a client for the time of an answer or of a slice of it."""
        self._used_s[client] = self._used(client) + seconds
        if len(self._used_s) > PENDING_MAX:  # drop entries that do not exceed the default
            self._used_s = {
                name: used
                for name, used in self._used_s.items()
                if used > self._min_used_s or name in self._waiting
            }


class _AnswerInProgress(Struct):
    """An answer in progress. `depth`: the number of other answers that it interrupts."""

    client: str
    slice_start: float
    """When the current slice began, by the host's clock."""
    depth: int


class ViewHost(Role):
    """The host of one shard of a view.

    `subscription`: the subscription to the journal; `checkpoint_time`: the T of the view's last
    checkpoint; `schedule`: when to write checkpoints; `retention`: decides how much history the
    view keeps; `save_checkpoint`: writes a checkpoint, called in a copy; `clock`: returns seconds,
    to measure how long spans and questions take.
    """

    def __init__(
        self,
        name: str,
        view: HostedView,
        subscription: Subscription,
        checkpoint_time: int,
        schedule: CheckpointSchedule,
        retention: Retention,
        save_checkpoint: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name)
        self.view = view
        self.subscription = subscription
        self.checkpoint_time = checkpoint_time
        self.answers: list[tuple[bytes, bytes]] = []
        """(route of a client, message with an answer or the view's T), to be sent."""
        self.to_journal: list[bytes] = []
        """Messages to the journal, to be sent."""
        self.job: BackgroundJob | None = None
        """The job that a copy runs or has to run; its result is passed to `finish_job`."""
        self.truncated: FeedEnded | None = None
        """Set if the journal no longer retains the outputs that the view needs next."""
        self.answered = 0
        """Number of answered questions."""
        self.applied = 0
        """Number of applied outputs."""
        self.is_ending = False
        """Whether the process should end, as soon as `can_end` is true."""
        self.has_room: Callable[[], bool] = lambda: True
        """Returns whether further answers may be queued; otherwise questions wait."""
        self.exchange: Callable[[], None] = lambda: None
        """Receives questions and sends answers; called between two slices of a long answer."""
        self.apply_s = self.ask_s = 0.0
        """Seconds spent on applying spans, and on answering questions."""
        self._schedule = schedule
        self._retention = retention
        self._save_checkpoint = save_checkpoint
        self._clock = clock
        self._sent_time: dict[bytes, int] = {}
        """Route of a client -> the last T that was sent to it."""
        self._ready = FairQueue()
        """The questions that can be answered now."""
        self._pending_requests: dict[tuple[bytes, int], Request] = {}
        """(route, number) -> a question that is not answered yet."""
        self._waiting: list[tuple[int, bytes, int]] = []
        """A heap of (T, route, number) of questions that wait for a T; some may be cancelled."""
        self._deadlines: list[tuple[float, bytes, int]] = []
        """A heap of (deadline by `self.now`, route, number) of the questions in `_waiting`."""
        self._pieces: deque[Span] = deque()
        """Received spans that are not applied yet."""
        self._deferrals = 0
        """Number of consecutive turns, up to now, that deferred work that no answer needs."""
        self._last_progress = 0, 0
        """(T, `answered`) in the last turn, to detect progress."""
        self._items = 0
        """Outputs applied since the last checkpoint began; plus 1 after a failed checkpoint."""
        self._last_item_at = 0.0
        """When outputs were last applied."""
        self._saved_at = 0.0
        """When the last checkpoint was written, by `self.now`; adjusted after a failed job."""
        self._saving = False
        """Whether `job` writes a checkpoint."""
        self._is_frozen = False
        """Whether a checkpoint has begun, and its copy is not forked yet."""
        self._job_failures = FailureLog("checkpoint-failed")
        self._journal_failures = FailureLog("view-not-following")

    # From the journal.

    def handle_journal_message(self, data: bytes) -> None:
        """Handle a message of the journal; apply or queue a span. Raises MalformedMessage."""
        message = self.subscription.decode(data)
        if isinstance(message, FeedEnded) and message.oldest < 0:  # the next follow message retries
            text = f"{self.name} cannot follow the journal: {message.reason}; retrying"
            self._journal_failures.record_failure(self.now, text, view=self.name)
        elif isinstance(message, FeedEnded):
            reason = _explain_truncation(self.name, self.view.time, message.oldest)
            self.truncated = FeedEnded(message.oldest, reason)
        elif not isinstance(message, DurableUpTo):
            self._journal_failures.record_success(
                self.now, f"{self.name} can follow the journal again"
            )
            self._pieces.extend(message.pieces(APPLY_ITEMS))
            if not self._is_apply_paused:
                self._apply_next()
        if credit := self.subscription.encode_credit():
            self.to_journal.append(credit)

    @property
    def busy(self) -> bool:
        """Whether messages of the journal have to wait for a later turn."""
        return bool(self._pieces) or self._is_apply_paused

    @property
    def _is_apply_paused(self) -> bool:
        """Whether a checkpoint that is due or being forked forbids applying spans."""
        return self._is_frozen or self.is_checkpoint_due

    @property
    def has_ready_questions(self) -> bool:
        """Whether questions can be answered now."""
        return bool(self._ready)

    def _apply_next(self) -> None:
        began = self._clock()
        span = self._pieces.popleft()
        if apply_span(self.view, span) and span.items:
            self._items += len(span.items)
            self._last_item_at = self.now
            self.applied += len(span.items)
        while self._waiting and self._waiting[0][0] <= self.view.time:
            _, route, number = heappop(self._waiting)
            self._make_ready(route, number)
        self.apply_s += self._clock() - began

    def _make_ready(self, route: bytes, number: int) -> None:
        request = self._pending_requests.get((route, number))
        if request is not None:
            self._ready.put(request.client, (route, number))

    def tick(self, now: float) -> float:
        self.to_journal.append(self.subscription.encode_follow(self.checkpoint_time))
        while self._deadlines and self._deadlines[0][0] <= now:
            _, route, number = heappop(self._deadlines)
            self._time_out(route, number)
        if len(self._waiting) > 2 * len(self._pending_requests) + 100:
            self._waiting = [
                entry for entry in self._waiting if entry[1:] in self._pending_requests
            ]
            heapify(self._waiting)
        return min(now + FOLLOW_EVERY_S, super().tick(now))

    # From clients.

    def handle_client_message(self, route: bytes, data: bytes) -> None:
        """Handle a message of a client; drop a malformed one."""
        try:
            request = decode_request(data)
        except MalformedMessage:
            self.malformed += 1
            return
        self._sent_time.setdefault(route, 0)
        if isinstance(request, Cancel):
            self._remove_request(route, request.number)
            return
        key = route, request.number
        if key in self._pending_requests:
            return  # a duplicate
        if len(self._pending_requests) >= PENDING_MAX:
            text = f"{PENDING_MAX} questions already wait at view {self.name}: retry later"
            self._answer(route, request.number, ApiError("busy", text))
            return
        self._pending_requests[key] = request
        at = request.question.get("at")
        needed_time = max(request.after, at if isinstance(at, int) else 0)
        if needed_time > self.view.time:
            heappush(self._deadlines, (self.now + request.timeout_s, *key))
            heappush(self._waiting, (needed_time, *key))
        else:
            self._make_ready(*key)

    def drop_client(self, route: bytes) -> None:
        """Drop the questions of a client that has disconnected."""
        self._sent_time.pop(route, None)
        for number in [number for each, number in self._pending_requests if each == route]:
            self._remove_request(route, number)

    def turn(self) -> bool:
        more = super().turn()
        until = self._clock() + APPLY_S
        while self._pieces and not self._is_apply_paused:
            self._apply_next()
            if self._clock() >= until:
                break
        self._send_time()
        until = self._clock() + SLICE_S
        while self._ready and self.has_room():
            self._answer_next()
            if self._clock() >= until:
                break
        before, self._last_progress = self._last_progress, (self.view.time, self.answered)
        if self._last_progress != before and self._deferrals < DEFERRALS_MAX:
            self._deferrals += 1
            return True  # first let the runtime send answers and receive questions
        self._deferrals = 0
        self.view.do_deferred_work()
        self._start_job_if_due()
        return more or bool(self._pieces) or bool(self._ready and self.has_room())

    def _send_time(self) -> None:
        """Send the view's T to each client that has not received it yet."""
        time = self.view.time
        for route, sent in self._sent_time.items():
            if sent < time:
                self._sent_time[route] = time
                self.answers.append((route, encode_view_time(time)))

    def _answer_next(self, depth: int = 0) -> None:
        route, number = key = self._ready.pop()
        request = self._pending_requests.pop(key, None)
        if request is None:
            return  # cancelled
        progress = _AnswerInProgress(request.client, self._clock(), depth)
        pause = partial(self._pause, progress)
        try:
            if request.question.get("what") == STATUS:
                answer = {"time": self.view.time, "since": self.view.since, **self.figures()}
                self._answer(route, number, answer)
            else:
                self._answer(route, number, self.view.ask(request.question, pause))
        except ApiError as error:
            self._answer(route, number, error)
        except DriftlineError as error:
            self._answer(route, number, ApiError("unavailable", str(error)))
        except Exception as error:  # a bug must not keep other questions from being answered
            kind = _kind(request.question)
            fields = event_fields("question-failed", view=self.name, question=kind)
            log.exception("%s could not answer a question", self.name, extra=fields)
            text = f"view {self.name} could not answer ({type(error).__name__}); its log says why"
            self._answer(route, number, ApiError("internal", text))
        self._charge(progress)
        self.answered += 1

    def _pause(self, progress: _AnswerInProgress) -> None:
        """If the slice of this answer has ended, serve clients that have used less time."""
        if progress.depth == NESTING_MAX or self._clock() < progress.slice_start + SLICE_S:
            return
        self._charge(progress)
        self.exchange()
        self._send_time()
        while self._ready.has_before(progress.client) and self.has_room():
            self._answer_next(progress.depth + 1)
        self.exchange()
        progress.slice_start = self._clock()

    def _charge(self, progress: _AnswerInProgress) -> None:
        took_s = self._clock() - progress.slice_start
        self._ready.charge(progress.client, took_s)
        self.ask_s += took_s

    def _answer(self, route: bytes, number: int, answer: Mapping[str, object] | ApiError) -> None:
        try:
            data = encode_answer(number, answer)
        except PayloadError as error:
            text = f"view {self.name} cannot send its answer: {error}"
            data = encode_answer(number, ApiError("internal", text))
        self.answers.append((route, data))

    def _time_out(self, route: bytes, number: int) -> None:
        request = self._remove_request(route, number)
        if request is not None:
            text = (
                f"{self.name} is at {format_time(self.view.time)} and did not reach the requested "
                f"label within {request.timeout_s:g} s: the view lags behind, or the label is of "
                "another service"
            )
            self._answer(route, number, ApiError("unavailable", text))

    def _remove_request(self, route: bytes, number: int) -> Request | None:
        return self._pending_requests.pop((route, number), None)

    # Checkpoints and background jobs.

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether a checkpoint has to begin before further spans are applied."""
        return (
            self._items > 0
            and self.job is None
            and self.subscription.durable_time >= self.view.time
            and self._wants_checkpoint()
        )

    def _wants_checkpoint(self) -> bool:
        if self.now < self._saved_at + self._schedule.seconds:
            # In a bulk load each checkpoint is larger than the last one, so the interval grows.
            items = max(self._schedule.items, min(4 * self._schedule.items, self.applied // 10))
            is_calm = self.is_ending or self.now >= self._last_item_at + CALM_S
            return self._items >= (min(CHECKPOINT_ITEMS_MIN, items) if is_calm else items)
        return True

    @property
    def can_end(self) -> bool:
        """Whether the process may exit: no job runs or waits, and fewer than `CHECKPOINT_ITEMS_MIN`
        outputs were applied since the last checkpoint began, so a restart is quick."""
        return self.job is None and self._items < CHECKPOINT_ITEMS_MIN

    def _start_job_if_due(self) -> None:
        if self.job is not None:
            return
        view = self.view
        if self.is_checkpoint_due:
            view.forget_before(self._retention.oldest_to_retain(view.time))
            view.freeze()
            self._items, self._saving, self._is_frozen = 0, True, True
            self.job = BackgroundJob(
                "write a checkpoint",
                self._save_checkpoint,
                partial(self._on_checkpoint_written, view.time),
            )
        else:
            self.job = view.next_job()

    def unfreeze(self) -> None:
        """Apply spans again. Called when the copy that writes the checkpoint is forked."""
        self._is_frozen = False

    def finish_job(self, succeeded: bool) -> None:
        """Handle the exit of the copy; `succeeded`: whether its job has succeeded."""
        assert self.job is not None
        job, self.job = self.job, None
        if succeeded:
            job.on_success()
            self._job_failures.record_success(self.now, f"{self.name} can {job.what} again")
        else:
            text = f"{self.name} cannot {job.what}: see the lines above; retrying"
            self._job_failures.record_failure(self.now, text, view=self.name)
            self._items += self._saving  # so that the checkpoint is retried
            self._saved_at = self.now - self._schedule.seconds + CHECKPOINT_RETRY_S
        self._saving = False

    def _on_checkpoint_written(self, time: int) -> None:
        self._saved_at = self.now
        self.checkpoint_time = time
        self.view.mark_saved()

    def figures(self) -> dict[str, float]:
        """Return figures of the host and its view, by name."""
        return {
            "checkpoint": self.checkpoint_time,
            "answered": self.answered,
            "applied": self.applied,
            "apply_s": self.apply_s,
            "ask_s": self.ask_s,
            "waiting": len(self._pending_requests),
            **self.view.figures(),
        }


def _explain_truncation(name: str, time: int, oldest: int) -> str:
    """Return the error text for a view whose next outputs the journal no longer retains."""
    present = f"has one at {format_time(time)}" if time else "has no usable one"
    return (
        f"its directory, {name} in the state directory, needs a checkpoint at "
        f"{format_time(oldest)} or later, and {present}: the journal has no earlier outputs "
        f"(--retain-mb dropped them, or files were removed). Restore {name} from a copy with such "
        "a checkpoint, or the whole state directory from one copy. Without a copy, start with a "
        "new --state, and resend everything"
    )


def _kind(question: Question) -> str:
    return str(question.get("what"))[:40]
