"""Readers of streams of events: they come again wherever they were, and leave often."""

from __future__ import annotations

import json
from random import Random
from threading import Event
from time import monotonic

import httpx

from driftline.serve.views.tokens import token_of
from tests.index.truth.clients import CLIENT_RETRY_S, CLIENT_TIMEOUT_S, COME_AGAIN, connected
from tests.index.truth.notes import Notes, label_of
from tests.index.truth.running import Running


class Reader(Running):
    """Reads the change stream from the beginning on, or the events of a watch from a label on."""

    def __init__(
        self,
        url: str,
        seed: int,
        notes: Notes,
        over: Event,
        path: str = "/changes",
        since: int = 0,
    ) -> None:
        super().__init__(f"reader of {path}")
        self.events: list[tuple[int, dict[str, object]]] = []
        """(label, event)"""
        self.came = 0
        self._url = url
        self._path = path
        self._chance = Random(f"{path} {seed}")
        self._notes = notes
        self._over = over
        self._since = self._last = token_of(since)

    def run(self) -> None:
        while not self._over.is_set():
            self._read(monotonic() + self._chance.uniform(0.5, 6.0))

    def read_up_to(self, label: int) -> None:
        """Read until the event of a label has come."""
        until = monotonic() + CLIENT_TIMEOUT_S
        while not self.events or self.events[-1][0] < label:
            assert monotonic() < until, f"the stream {self._path} does not come to {label}"
            self._read(until, label)

    def _read(self, leaves: float, label: int | None = None) -> None:
        self.came += 1
        parameters = {"from": self._since}
        headers = {"Last-Event-ID": self._last}
        try:
            with (
                connected(self._url) as http,
                http.stream("GET", self._path, params=parameters, headers=headers) as answer,
            ):
                if answer.status_code == 200:
                    self._take(answer, leaves, label)
                    return
                if answer.status_code not in COME_AGAIN and not self._is_removed(answer):
                    self._notes.wrong.append(f"{self._path}: {answer.status_code}")
        except httpx.TransportError:
            self._notes.refused["stream"] += 1
        self._over.wait(CLIENT_RETRY_S)

    def _is_removed(self, answer: httpx.Response) -> bool:
        """There is no such watch for a while: what it has told goes on once it is there again."""
        return answer.status_code == 404 and self._path.startswith("/watches/")

    def _take(self, answer: httpx.Response, leaves: float, label: int | None) -> None:
        event: dict[str, str] = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(":")
                event[name] = value.removeprefix(" ")
                continue
            if "id" in event:
                self._last = event["id"]
            if event.get("event", "message") == "message" and "data" in event:
                self.events.append((label_of(self._last), json.loads(event["data"])))
            elif event.get("event") == "error":
                self._note_error(event)
                return
            event = {}
            if monotonic() > leaves:
                return
            if label is not None and self.events and self.events[-1][0] >= label:
                return

    def _note_error(self, event: dict[str, str]) -> None:
        """A searcher that is away for long ends the stream of a watch: one comes again."""
        code = json.loads(event["data"])["error"]["code"]
        if code == "unavailable" and self._path != "/changes":
            self._notes.refused[f"stream: {code}"] += 1
        else:
            self._notes.wrong.append(f"{self._path}: {event}")
