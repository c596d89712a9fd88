"""Supervision between the turns of a service: shutdown requests, and processes that died.

At SIGTERM or `driftline stop`, the service accepts no more requests. Once the running requests have
ended, or after `ENDS_WITHIN_S`, the front drains and the flow stops.
"""

from __future__ import annotations

from math import inf
from time import monotonic

from driftline.coordinator.registry import RunOutcome
from driftline.deploy.roles.front import Front
from driftline.deploy.runtime.signals import Signals
from driftline.engine.errors import Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.wire.messages import Stop
from driftline.serve.gateway.server import HttpServer
from driftline.serve.hosting.children import Children
from driftline.serve.running.deployment import ENDS_WITHIN_S, Deployment

TELL_EVERY_S = 10.0
"""Interval of the log lines about a slow shutdown."""


class SessionSupervisor:
    """Supervisor of one session."""

    def __init__(
        self,
        front: Front,
        signals: Signals,
        deployment: Deployment,
        children: Children,
        http: HttpServer,
    ) -> None:
        self._front = front
        self._signals = signals
        self._deployment = deployment
        self._children = children
        self._http = http
        self._end_at = self._tell_at = inf

    def supervise(self) -> Stop | RunOutcome | None:
        """Do the supervision that is due. Return the outcome once the session has ended.

        Raises DriftlineError if the service cannot continue.
        """
        now = monotonic()
        self._signals.check()
        signal = self._signals.stop_signal
        asked = self._deployment.stop_request if signal is None else signal.name
        self._children.ending = bool(asked)
        if asked:
            self._end(asked, now)
        elif self._http.ended:
            raise Unavailable(f"the HTTP server has ended: {self._http.error}")
        if self._children.is_due(now):
            self._children.supervise()
        self._deployment.supervise(now)
        return self._front.outcome or self._deployment.outcome

    def _end(self, asked: str, now: float) -> None:
        """Stop the HTTP server, then drain the front; log a slow shutdown."""
        front, http = self._front, self._http
        if self._end_at == inf:
            self._end_at = now + ENDS_WITHIN_S
            log.info(
                "%s: draining, no more is accepted",
                asked,
                extra=event_fields("drain-requested", signal=asked),
            )
            http.stop()
        if not front.draining and (http.ended or now >= self._end_at):
            front.drain()
            self._tell_at = now + TELL_EVERY_S
        elif now >= self._tell_at:
            self._tell_at = now + TELL_EVERY_S
            reason = self._deployment.wait_reason or "accepted records are processed and saved"
            text = "it has not ended yet: %s. A kill -9 loses nothing"
            log.warning(text, reason, extra=event_fields("ending", reason=reason))
