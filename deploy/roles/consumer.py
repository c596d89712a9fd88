"""The consumer server: the role that stores bundles of barriers in their consumers.

It runs in its own process, or beside a node.

Takes `FetchLast` and `Bundle` from barriers. Answers `LastBundle` or `BundleStored`; `Delayed` if
the barrier has to retry (a full disk); `Failed` if a retry would not help (a payload that the
target cannot hold, a directory of another run).

The first `FetchLast` of an incarnation sets a fence: the server drops messages of earlier
incarnations, whether they arrive late or come from a node that does not know that it was replaced.
A server that has just started has no fences. It stores no bundle of a barrier before the barrier's
first `FetchLast`; a barrier sends one if an answer is overdue.

Invariant: a bundle that was answered with `BundleStored` is durable and stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from driftline.connectors.sinks.consumer import Consumer
from driftline.engine.errors import DriftlineError, MalformedMessage, Unavailable
from driftline.engine.events import (
    REPEAT_LOG_S,
    FailureLog,
    Field,
    RateLimitedLog,
    event_fields,
    log,
)
from driftline.engine.operators.context import parts
from driftline.engine.operators.user_code import is_driftline_file
from driftline.engine.sources import BadRecord
from driftline.engine.texts import counted, escape_controls, format_time
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.messages import (
    Bundle,
    BundleStored,
    Delayed,
    Failed,
    FetchLast,
    LastBundle,
    Message,
)
from driftline.engine.wire.role import Role


class DeadLetters(RateLimitedLog):
    """Rate-limited log lines about dead letters.

    The first dead letter is logged at once. Each later line gives the number of dead letters since
    the line before, and the last of them. There are at most two lines a minute, and one at the end.
    The owner adds each failure that a consumer stored, and each bad record that was set aside,
    once. `location`: where the dead letters are, for people.
    """

    def __init__(self, location: str) -> None:
        super().__init__("dead-letters", location, pause_s=REPEAT_LOG_S)
        self._fields: dict[str, Field] = {}
        """Fields of the last dead letter, for the log."""
        self._noun = ""
        self._more = ""
        """Empty before the first log line, then "more "."""

    def add_failures(self, now: float, failures: Sequence[Item]) -> None:
        """Add failures that a consumer stored, if any; `now`: seconds, monotonic."""
        if not failures:
            return
        label, value = failures[-1].label, failures[-1].value
        operator, _, _, error, line, _ = parts(value)
        self._noun = "dead letter"
        element = f"{format_time(label[0])} of input {label[1]}"
        self._fields = {
            "operator": operator,
            "label": str(list(label)),
            "error": error,
            "line": line,
        }
        source_line = "" if is_driftline_file(line) else f"; at: {line}"
        text = f"operator {operator!r} failed at {element}: {error}{source_line}"
        self.add(now, escape_controls(text), len(failures))

    def add_bad_records(self, now: float, records: Sequence[BadRecord]) -> None:
        """Add bad records that were set aside, if any."""
        if not records:
            return
        last = records[-1]
        self._noun = "bad record"
        self._fields = {"file": last.file, "record": last.time, "error": last.reason}
        text = f"{last.file}, {format_time(last.time)}: {last.reason}"
        self.add(now, escape_controls(text), len(records))

    def _log(self, count: int, last: str) -> None:
        letters = counted(count, f"{self._more}{self._noun}")
        prefix = "the last one: " * (count > 1)
        fields = event_fields(self._event, count=count, directory=self._title, **self._fields)
        log.warning("%s: %s%s; set aside in %s", letters, prefix, last, self._title, extra=fields)
        self._more = "more "


class ConsumerServer(Role):
    """Server of the consumers of any number of barriers.

    `open_consumer`: takes the name of a barrier and opens its consumer; `letters`: log of the dead
    letters that the consumers store; this server calls its `log_if_due`.
    """

    def __init__(
        self, open_consumer: Callable[[str], Consumer], letters: DeadLetters | None = None
    ) -> None:
        super().__init__("consumer")
        self.fences: dict[str, int] = {}
        """Barrier -> incarnation of its last accepted `FetchLast`; older messages are dropped."""
        self.problems: dict[str, str] = {}
        """Barrier with an unavailable consumer -> the reason, for people."""
        self._failure_logs: dict[str, FailureLog] = {}
        self._unstored: set[str] = set()
        """Barriers whose last bundle could not be stored."""
        self._open_consumer = open_consumer
        self._letters = letters
        self._consumers: dict[str, Consumer] = {}

    def handle(self, sender: str, message: Message) -> None:
        if not isinstance(message, (FetchLast, Bundle)):
            raise MalformedMessage(f"{type(message).__name__} is not for a consumer")
        if self._is_fenced_off(message):
            return
        try:
            if isinstance(message, FetchLast):
                self._answer_last(sender, message)
            else:
                self._store(sender, message)
        except MalformedMessage:
            raise
        except Unavailable as error:
            self._record_problem(message, str(error))
            self.send(sender, Delayed(message.barrier, message.incarnation, str(error)))
        except DriftlineError as error:
            kind = type(error).__name__
            fields = event_fields(
                "consumer-refuses", barrier=message.barrier, error=kind, reason=str(error)
            )
            log.error("%s: the consumer cannot continue: %s", message.barrier, error, extra=fields)
            self.send(sender, Failed(message.incarnation, type(error).__name__, str(error)))
        else:
            if message.barrier in self.problems:
                self._record_recovery(message)

    def tick(self, now: float) -> float:
        if self._letters is not None:
            self._letters.log_if_due(now)
        return super().tick(now)

    def channel_lost(self, sender: str) -> None:
        """Do nothing: a consumer receives only control messages, which have no numbers."""

    def close(self) -> None:
        """Close all consumers."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def _is_fenced_off(self, message: FetchLast | Bundle) -> bool:
        fence = self.fences.get(message.barrier)
        if fence is None:
            return isinstance(message, Bundle)
        return message.incarnation < fence

    def _answer_last(self, sender: str, request: FetchLast) -> None:
        self.fences[request.barrier] = request.incarnation
        self.addresses[sender] = request.address
        last = self._consumer(request.barrier).last(request.barrier, request.groups)
        # The barrier compares only the first answer of an incarnation with its replay. It repeats
        # its request while the consumer is slow, so later answers (number > 0) have no blobs.
        blobs = () if request.number else last.blobs
        answer_to = request.barrier, request.incarnation, request.number
        self.send(sender, LastBundle(*answer_to, blobs, last.t_last, last.checksum))

    def _store(self, sender: str, bundle: Bundle) -> None:
        consumer = self._consumer(bundle.barrier)
        if bundle.t_last > consumer.last(bundle.barrier, bundle.groups).t_last:
            consumer.deliver(bundle)
        self.send(sender, BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last))

    def _consumer(self, barrier: str) -> Consumer:
        if barrier not in self._consumers:
            self._consumers[barrier] = self._open_consumer(barrier)
        return self._consumers[barrier]

    def _record_problem(self, message: FetchLast | Bundle, problem: str) -> None:
        barrier = message.barrier
        self.problems[barrier] = problem
        if isinstance(message, Bundle):
            self._unstored.add(barrier)
        failure_log = self._failure_logs.setdefault(barrier, FailureLog("consumer-unavailable"))
        failure_log.record_failure(self.now, f"{barrier}: {problem}; retrying", barrier=barrier)

    def _record_recovery(self, message: FetchLast | Bundle) -> None:
        barrier = message.barrier
        if isinstance(message, Bundle):
            self._unstored.discard(barrier)
        elif barrier in self._unstored:
            return
        del self.problems[barrier]
        text = f"{barrier}: its consumer is available again"
        self._failure_logs.pop(barrier).record_success(self.now, text, barrier=barrier)
