"""Signals that ask the command to end: SIGTERM, SIGHUP and SIGINT (Ctrl-C).

While a run can end gracefully (`Signals.defer`), the first signal only sets `stop_signal`: the run
sees it, and ends once everything is delivered and saved. The loop of the run calls `check`, which
raises after a second signal: an exception raised in a handler might be swallowed. A third signal,
and a signal at any other time, raises at once, in the handler. SIGINT raises KeyboardInterrupt; the
other signals raise SystemExit with status 128 + the number of the signal.

If SIGCHLD is ignored, for example by the file of a flow, `Signals` restores the default: otherwise
the exit statuses of children would be unknown.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

from driftline.deploy.runtime.supervision.child import TERMINATION_SIGNALS
from driftline.engine.events import event_fields, log


class Signals:
    """Signal handlers of this process, as a context manager; a no-op outside the main thread."""

    def __init__(self) -> None:
        self.stop_signal: signal.Signals | None = None
        """The first signal within `defer`; None: none yet."""
        self._second_signal: signal.Signals | None = None
        self._is_deferring = False
        self._handlers: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._handlers = {
                each: signal.signal(each, self._handle_signal) for each in TERMINATION_SIGNALS
            }
            if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
                self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each, handler in self._handlers.items():
            signal.signal(each, handler)  # type: ignore[arg-type]  # as `signal.signal` returned it

    def check(self) -> None:
        """Raise KeyboardInterrupt or SystemExit after a second signal."""
        if self._second_signal is not None:
            self._raise_exit(self._second_signal)

    @contextmanager
    def defer(self) -> Iterator[None]:
        """Within this context, store the first signal in `stop_signal` instead of raising.

        The caller must call `check` regularly, because a second signal raises only in `check`.
        """
        self._is_deferring = True
        try:
            yield
        finally:
            self._is_deferring = False

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        received = signal.Signals(number)
        if self._is_deferring and self.stop_signal is None:
            self.stop_signal = received
        elif self._is_deferring and self._second_signal is None:
            self._second_signal = received
        else:
            self._raise_exit(received)

    def _raise_exit(self, received: signal.Signals) -> None:
        for each in TERMINATION_SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # a further signal must not interrupt the clean-up
        if received is signal.SIGINT:
            raise KeyboardInterrupt
        log.warning("ended by %s", received.name, extra=event_fields("ended", signal=received.name))
        raise SystemExit(128 + received)
