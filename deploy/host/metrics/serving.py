"""Serving the metrics of a process, as soon as its port is free.

Only processes that serve metrics import this: the libraries for it take a while to load, which a
process that is started again should not take for nothing.
"""

from __future__ import annotations

import threading
from time import monotonic
from types import TracebackType
from typing import Self

from driftline.deploy.host.metrics.collector import registry_of
from driftline.deploy.host.metrics.endpoint import Endpoint
from driftline.deploy.host.metrics.health import Health
from driftline.deploy.host.metrics.samples import Samples
from driftline.deploy.host.metrics.server import MetricsServer
from driftline.engine.events import Trouble, about, log

AGAIN_S = 5.0
"""Seconds between two tries of a process whose port is taken."""


class Serving:
    """Serves the metrics of a process, as soon as its port is free. A context manager."""

    def __init__(
        self, endpoint: Endpoint, name: str, flow: str, samples: tuple[Samples, ...], health: Health
    ) -> None:
        """`name`: of the process, as in log lines; `flow`: its name."""
        self._endpoint = endpoint
        self._name = name
        self._registry, self._health = registry_of(flow, *samples), health
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
            server = MetricsServer(*self._endpoint.place(), self._registry, self._health)
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

    def _try_again(self) -> None:
        while not self._over.wait(AGAIN_S) and not self._open():
            pass
