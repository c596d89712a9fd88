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
from tests.index.truth.clients import Client, Reader
from tests.index.truth.notes import Notes, label_of
from tests.index.truth.service import Killer, Service

CLIENTS = 4

SECONDS = 20.0

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
    _run(service, tmp_path, float(os.environ.get("KILLS_SECONDS", SECONDS)), seed=1)


@pytest.mark.soak
def test_they_are_for_a_long_time(service: Service, tmp_path: Path) -> None:
    minutes = float(os.environ.get("SOAK_MINUTES", "30"))
    _run(service, tmp_path, 60 * minutes, seed=2)


def _run(service: Service, tmp_path: Path, seconds: float, seed: int) -> None:
    notes, over = Notes(), Event()
    clients = [Client(f"c{i}", seed, service.url, notes, over) for i in range(CLIENTS)]
    reader = Reader(service.url, seed, notes, over)
    for each in (*clients, reader):
        each.start()
    try:
        killer = Killer(service, seed, (0.3, 2.5))
        killer.start()
        until = monotonic() + seconds
        while monotonic() < until and all(each.alive for each in clients):
            over.wait(0.2)
        killer.end()
        assert service.end() == 0, "ended under load"
        service.start()
    finally:
        over.set()
        for each in (*clients, reader):
            each.join()
    print(f"\n{len(killer.done)} deeds: {', '.join(killer.done)}")
    print(f"{len(notes.sent)} writes, answers: {by_kind(notes.answered)}, {dict(notes.refused)}")
    for each in (*clients, reader):
        if each.error is not None:
            raise each.error

    # What was answered can be asked again, though nothing is written any more.
    service.kill()
    took = service.start()
    print(f"ready after {took:.1f} s")
    _ask_again(service, notes, seed)
    last = httpx.put(f"{service.url}/documents/last", json={}, params={"wait": "visible"})
    assert last.status_code == 200, last.text
    end = label_of(last.json()["label"])
    reader.read_up_to(end)
    again = Reader(service.url, seed, notes, Event())
    again.read_up_to(end)
    assert reader.events == again.events
    assert again.events.pop() == (end, {"id": "last", "document": {}, "label": token_of(end)})
    collection = load_schema(tmp_path / "schema.toml").collections["documents"]
    check(notes, again.events, collection)

    # Also if the searchers have to begin anew.
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
        for each in Random(seed).sample(newest, REPEATED // 2) + newest[-REPEATED // 2 :]:
            if each.begin:
                continue  # it is behind a cursor
            given: dict[str, str | int] = {"q": each.query, "at": token_of(each.at)}
            if each.what == "search":
                given |= {"limit": each.limit, "snippets": 0, "sort": each.sort}
            answer = http.get(f"/{each.what}", params=given)
            assert answer.status_code == 200, f"{given}: {answer.text}"
            found = answer.json()
            hits = [(hit["id"], hit["score"], hit["label"]) for hit in found.get("hits", ())]
            before = [(id, score, token_of(label)) for id, score, label in each.hits]
            assert (found["total"], hits) == (each.total, before), given
