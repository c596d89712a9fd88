"""Guards calls to user-defined sources and sinks: their errors name the source or the sink.

A connector raises Driftline's errors for expected failures. Any other exception, and a result of a
wrong type, is a fault of the connector: it becomes a FlowError, which ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic, sleep
from typing import TypeVar

from driftline.connectors.live import LiveSource, Record
from driftline.engine.errors import DriftlineError, FlowError, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.operators.user_code import line_of
from driftline.engine.texts import describe_exception, reraise_interrupt

T = TypeVar("T")

LAST_ACKNOWLEDGEMENT_S = 5.0
"""How long the last acknowledgement of a source is retried, in seconds."""

ACKNOWLEDGEMENT_RETRY_S = 0.5
"""Pause before each retry of the last acknowledgement, in seconds."""


def call_guarded(subject: str, call: Callable[[], T]) -> T:
    """Return the result of a connector call. `subject`: the source or the sink, for errors.

    Raises FlowError for an exception that is not Driftline's.
    """
    try:
        return call()
    except DriftlineError:
        raise
    except BaseException as error:  # also SystemExit: user code must not end the process
        reraise_interrupt(error)
        raise FlowError(
            f"{subject} raised {describe_exception(error)}\n  at: {line_of(error)}\n"
            "  Fix it, and run the same command again; for temporary errors, raise Unavailable"
        ) from error


class GuardedSource:
    """A live source with checked calls and results."""

    def __init__(self, source: LiveSource) -> None:
        """Wrap a source. Raises FlowError if its name is not a text."""
        self._source = source
        self.name = call_guarded(f"the source {type(source).__name__}", lambda: source.name)
        self._title = f"the source {self.name!r}"
        if not isinstance(self.name, str):
            raise FlowError(f"{self._title}: its name is not a text")

    def identity(self) -> str:
        """Return `LiveSource.identity`."""
        identity = call_guarded(self._title, self._source.identity)
        if not isinstance(identity, str):
            raise FlowError(f"{self._title}: identity() returned {identity!r}, which is not a text")
        return identity

    def start(self, offsets: Mapping[str, int]) -> None:
        """Call `LiveSource.start`."""
        call_guarded(self._title, lambda: self._source.start(offsets))

    def poll(self, timeout_s: float) -> list[Record] | None:
        """Return the records of `LiveSource.poll`."""
        return call_guarded(self._title, lambda: self._poll(timeout_s))

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """Call `LiveSource.acknowledge`."""
        call_guarded(self._title, lambda: self._source.acknowledge(offsets))

    def acknowledge_last(self, offsets: Mapping[str, int]) -> None:
        """Call `LiveSource.acknowledge` at the end of a run; retry while it raises Unavailable.

        After `LAST_ACKNOWLEDGEMENT_S`, only log a warning, because the records are stored.
        """
        deadline = monotonic() + LAST_ACKNOWLEDGEMENT_S
        while True:
            try:
                return self.acknowledge(offsets)
            except Unavailable as error:
                if monotonic() > deadline:
                    log.warning(
                        "%s: the last records are stored, but not acknowledged: %s",
                        *(self.name, error),
                        extra=event_fields("source-not-acknowledged", name=self.name),
                    )
                    return None
            sleep(ACKNOWLEDGEMENT_RETRY_S)

    def close(self) -> None:
        """Call `LiveSource.close`; log its error as a warning, as all records are stored."""
        try:
            call_guarded(self._title, self._source.close)
        except DriftlineError as error:
            fields = event_fields("source-not-closed", name=self.name)
            log.warning("%s", error, extra=fields)

    def _poll(self, timeout_s: float) -> list[Record] | None:
        batch = self._source.poll(timeout_s)
        if batch is None:
            return None
        try:
            return [Record(*record) for record in batch]
        except TypeError:
            raise FlowError(
                f"{self._title}: poll() returned {batch!r:.200}; give a list of Record, or None at "
                "the end"
            ) from None
