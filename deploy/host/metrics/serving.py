"""Serving the metrics of a process, as soon as its port is free.

Only processes that serve metrics import this: the libraries for it take a while to load, which a
process that is started again should not take for nothing.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from driftline.deploy.host.metrics.collector import Tagged, registry_of
from driftline.deploy.host.metrics.endpoint import Endpoint
from driftline.deploy.host.metrics.health import Condition
from driftline.deploy.host.metrics.ports import note_port, noted_port
from driftline.deploy.host.metrics.server import MetricsServer, Targets
from driftline.engine.events import Trouble, about, log

AGAIN_S = 5.0
"""Seconds between two tries of a process whose port is taken."""


class Serving:
    """Serves the metrics of a process, as soon as its port is free. A context manager."""

    def __init__(
        self,
        endpoint: Endpoint,
        name: str,
        given: Tagged,
        health: Condition,
        note: Path | None = None,
        targets: Targets | None = None,
    ) -> None:
        """`name`: of the process, as in log lines; `note`: where the port is noted, if any will do;
        `targets`: where others serve."""
        self._endpoint = endpoint
        self._name = name
        self._registry, self._health = registry_of(given), health
        self._note, self._targets = note, targets
        self._server: MetricsServer | None = None
        self._trouble = Trouble("metrics-unavailable")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._try_again, daemon=True)

    def __enter__(self) -> Self:
        if not self._open():
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._server is not None:
            self._server.stop()

    def _open(self) -> bool:
        """Try to listen. Returns whether it does."""
        try:
            server = self._listening()
            try:
                if self._note is not None:
                    note_port(self._note, server.port)
            except OSError:
                server.server_close()
                raise
        except OSError as error:
            text = f"{self._name}: {self._endpoint.fault(error)}; trying again"
            self._trouble.failed(monotonic(), text, name=self._name)
            return False
        self._trouble.over(monotonic(), f"{self._name} can serve metrics", name=self._name)
        url = f"{server.url}/metrics"
        told = about("listening", name=self._name, address=url)
        log.info("metrics of %s at %s", self._name, url, extra=told)
        server.start()
        self._server = server
        return True

    def _listening(self) -> MetricsServer:
        """A server at the port; if any will do, at that of the process before, if it is free."""
        endpoint = self._endpoint
        if self._note is not None and (before := noted_port(self._note)):
            with suppress(OSError):
                return self._at(replace(endpoint, port=before))
        return self._at(endpoint)

    def _at(self, endpoint: Endpoint) -> MetricsServer:
        return MetricsServer(*endpoint.place(), self._registry, self._health, self._targets)

    def _try_again(self) -> None:
        while not self._over.wait(AGAIN_S) and not self._open():
            pass
