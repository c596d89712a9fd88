"""Readers of event streams, which disconnect often and resume after the last event."""

from __future__ import annotations

import json
from random import Random
from threading import Event
from time import monotonic

import httpx

from driftline.serve.views.tokens import token_of
from tests.index.truth.background_thread import BackgroundThread
from tests.index.truth.client_history import ClientHistory, label_of
from tests.index.truth.clients import (
    CLIENT_RETRY_S,
    CLIENT_TIMEOUT_S,
    RETRYABLE_STATUSES,
    open_http_client,
)


class EventStreamReader(BackgroundThread):
    """Reader of the change stream or of the events of a watch, from the label `since` on."""

    def __init__(
        self,
        url: str,
        seed: int,
        history: ClientHistory,
        stop: Event,
        path: str = "/changes",
        since: int = 0,
    ) -> None:
        super().__init__(f"reader of {path}")
        self.events: list[tuple[int, dict[str, object]]] = []
        """(label, event)"""
        self._url = url
        self._path = path
        self._rng = Random(f"{path} {seed}")
        self._history = history
        self._stop = stop
        self._since = self._last = token_of(since)

    def run(self) -> None:
        while not self._stop.is_set():
            self._read(monotonic() + self._rng.uniform(0.5, 6.0))

    def read_up_to(self, label: int) -> None:
        """Read until an event with this label or a later one has arrived."""
        until = monotonic() + CLIENT_TIMEOUT_S
        while not self.events or self.events[-1][0] < label:
            assert monotonic() < until, f"the stream {self._path} did not reach {label} in time"
            self._read(until, label)

    def _read(self, deadline: float, label: int | None = None) -> None:
        parameters = {"from": self._since}
        headers = {"Last-Event-ID": self._last}
        try:
            with (
                open_http_client(self._url) as http,
                http.stream("GET", self._path, params=parameters, headers=headers) as response,
            ):
                if response.status_code == 200:
                    self._read_events(response, deadline, label)
                    return
                if response.status_code not in RETRYABLE_STATUSES and not self._is_removed(
                    response
                ):
                    self._history.errors.append(f"{self._path}: {response.status_code}")
        except httpx.TransportError:
            self._history.retries["stream"] += 1
        self._stop.wait(CLIENT_RETRY_S)

    def _is_removed(self, response: httpx.Response) -> bool:
        """Whether the watch is removed for a while; its stream resumes once it is stored again."""
        return response.status_code == 404 and self._path.startswith("/watches/")

    def _read_events(self, response: httpx.Response, deadline: float, label: int | None) -> None:
        event: dict[str, str] = {}
        for line in response.iter_lines():
            if line:
                name, _, value = line.partition(":")
                event[name] = value.removeprefix(" ")
                continue
            if "id" in event:
                self._last = event["id"]
            if event.get("event", "message") == "message" and "data" in event:
                self.events.append((label_of(self._last), json.loads(event["data"])))
            elif event.get("event") == "error":
                self._record_error(event)
                return
            event = {}
            if monotonic() > deadline:
                return
            if label is not None and self.events and self.events[-1][0] >= label:
                return

    def _record_error(self, event: dict[str, str]) -> None:
        """Record an error event; a watch stream may end with `unavailable`, and is resumed."""
        code = json.loads(event["data"])["error"]["code"]
        if code == "unavailable" and self._path != "/changes":
            self._history.retries[f"stream: {code}"] += 1
        else:
            self._history.errors.append(f"{self._path}: {event}")
