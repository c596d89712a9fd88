"""An index under load whose processes are killed all the time: all answers are those of a
sequential index, and nothing is lost or there twice.

SOAK_MINUTES=60 pytest -m soak -n 0 -s tests/index/truth/test_kills.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic

import httpx
import pytest

from driftline.index.documents.schema import load_schema
from driftline.serve.views.tokens import token_of
from tests.index.truth import samples
from tests.index.truth.checking import by_kind, check
from tests.index.truth.clients import Client, watches_of
from tests.index.truth.notes import Notes, label_of
from tests.index.truth.readers import Reader
from tests.index.truth.service import Killer, Service

CLIENTS = 4

SECONDS = 5.0

PAUSE_S = 0.3, 2.5
"""Between two kills."""

KILLS = 20
"""So many a long run has at least."""

REPEATED = 300
"""Answers that are asked for again at the end."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """An index with two nodes and two searchers."""
    schema = tmp_path / "schema.toml"
    schema.write_text(samples.SCHEMA)
    options = ("--nodes", "2", "--searchers", "2", "--schema", str(schema))
    found = Service(tmp_path / "state", *options)
    found.start()
    yield found
    found.close()


def test_all_answers_are_those_of_a_sequential_index(service: Service, tmp_path: Path) -> None:
    seconds = float(os.environ.get("KILLS_SECONDS", SECONDS))
    withstand(service, Killer(service, 1, PAUSE_S), tmp_path, seconds, seed=1)


@pytest.mark.soak
def test_answers_equal_a_sequential_index_in_a_long_soak(service: Service, tmp_path: Path) -> None:
    minutes = float(os.environ.get("SOAK_MINUTES", "30"))
    killer = Killer(service, 2, PAUSE_S)
    withstand(service, killer, tmp_path, 60 * minutes, seed=2)
    assert killer.kills >= KILLS, f"only {killer.kills} kills: give more SOAK_MINUTES"


def withstand(service: Service, killer: Killer, tmp_path: Path, seconds: float, seed: int) -> None:
    """All answers are right, and all writes are there, while the killer is at work, and later."""
    notes, over = Notes(), Event()
    clients = [Client(f"c{i}", seed, service.url, notes, over) for i in range(CLIENTS)]
    reader = Reader(service.url, seed, notes, over)
    watching: dict[str, Reader] = {}
    for client in clients:
        for watch in watches_of(client.name):
            client.watch(watch, "*")
            path, since = f"/watches/{watch}/events", notes.watched[-1].label
            watching[watch] = Reader(service.url, seed, notes, over, path, since)
    running = [*clients, reader, *watching.values()]
    for each in running:
        each.start()
    try:
        killer.start()
        until = monotonic() + seconds
        while monotonic() < until and all(each.alive for each in clients):
            over.wait(0.2)
        killer.end()
        assert service.end() == 0, "ended under load"
        service.start()
    finally:
        over.set()
        for each in running:
            each.join()
    deeds = ", ".join(killer.done)
    print(f"\n{killer.kills} kills, {len(killer.done)} deeds: {deeds}")
    print(f"{len(notes.sent)} writes, answers: {by_kind(notes.answered)}, {dict(notes.refused)}")
    for each in running:
        if each.error is not None:
            raise each.error

    # What was answered can be asked again, though nothing is written any more.
    service.kill()
    took = service.start()
    print(f"ready after {took:.1f} s")
    _ask_again(service, notes, seed)
    at_last = Client("last", seed, service.url, notes, Event())
    for watch in watching:
        at_last.watch(watch, "*")
    last = httpx.put(f"{service.url}/documents/last", json={}, params={"wait": "visible"})
    assert last.status_code == 200, last.text
    end = label_of(last.json()["label"])
    for each in (reader, *watching.values()):
        each.read_up_to(end)
    again = Reader(service.url, seed, notes, Event())
    again.read_up_to(end)
    assert reader.events == again.events
    assert again.events.pop() == (end, {"id": "last", "document": {}, "label": token_of(end)})
    collection = load_schema(tmp_path / "schema.toml").collections["documents"]
    streams = {watch: each.events for watch, each in watching.items()}
    for watch, stream in streams.items():
        begins = {"watch": watch, "id": "last", "event": "entered", "label": token_of(end)}
        assert stream.pop() == (end, begins)
    print(f"{sum(map(len, streams.values()))} events of {len(notes.watched)} stored queries")
    check(notes, again.events, collection, streams)

    anew = [line for line in service.log.read_text().splitlines() if "anew" in line]
    assert not anew, "a searcher has not taken its own checkpoint"

    # Also if the searchers have to start over.
    assert service.end() == 0
    (tmp_path / "state" / "documents-0" / "checkpoint").unlink()
    damaged = tmp_path / "state" / "documents-1" / "checkpoint"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    service.start()
    _ask_again(service, notes, seed)


def _ask_again(service: Service, notes: Notes, seed: int) -> None:
    """Answers of before are the same, among them the newest."""
    asked = [each for each in notes.answered if each.what != "get" and each.facet is None]
    newest = sorted(asked, key=lambda each: each.at)[-REPEATED:]
    with httpx.Client(base_url=service.url, timeout=30.0) as http:
        some = Random(seed).sample(newest, min(REPEATED // 2, len(newest)))
        for each in some + newest[-REPEATED // 2 :]:
            if each.begin:
                continue  # it is behind a cursor
            parameters: dict[str, str | int] = {"q": each.query, "at": token_of(each.at)}
            if each.what == "search":
                parameters |= {"limit": each.limit, "snippets": 0, "sort": each.sort}
            answer = http.get(f"/{each.what}", params=parameters)
            assert answer.status_code == 200, f"{parameters}: {answer.text}"
            found = answer.json()
            hits = [(hit["id"], hit["score"], hit["label"]) for hit in found.get("hits", ())]
            before = [(id, score, token_of(label)) for id, score, label in each.hits]
            assert (found["total"], hits) == (each.total, before), parameters
