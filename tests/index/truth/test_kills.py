"""Index under load whose processes are killed continually: all answers equal those of a sequential
index, and no write is lost or duplicated.

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
from tests.index.truth.checker import by_kind, check
from tests.index.truth.client_history import ClientHistory, label_of
from tests.index.truth.clients import RandomClient, watches_of
from tests.index.truth.service import FaultInjector, ServiceProcess
from tests.index.truth.stream_reader import EventStreamReader

CLIENTS = 4

SECONDS = 5.0

PAUSE_S = 0.3, 2.5
"""Range of the pause between two faults."""

KILLS = 20
"""Minimum number of kills in the soak."""

REPEATED = 300
"""Number of reads that are repeated at the end."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """Start an index service with two nodes and two searchers."""
    schema = tmp_path / "schema.toml"
    schema.write_text(samples.SCHEMA)
    options = ("--nodes", "2", "--searchers", "2", "--schema", str(schema))
    found = ServiceProcess(tmp_path / "state", *options)
    found.start()
    yield found
    found.close()


def test_answers_equal_a_sequential_index_under_kills(
    service: ServiceProcess, tmp_path: Path
) -> None:
    seconds = float(os.environ.get("KILLS_SECONDS", SECONDS))
    run_under_faults(service, FaultInjector(service, 1, PAUSE_S), tmp_path, seconds, seed=1)


@pytest.mark.soak
def test_answers_equal_a_sequential_index_in_a_long_soak(
    service: ServiceProcess, tmp_path: Path
) -> None:
    minutes = float(os.environ.get("SOAK_MINUTES", "30"))
    injector = FaultInjector(service, 2, PAUSE_S)
    run_under_faults(service, injector, tmp_path, 60 * minutes, seed=2)
    assert injector.kill_count >= KILLS, f"only {injector.kill_count} kills: give more SOAK_MINUTES"


def run_under_faults(
    service: ServiceProcess, injector: FaultInjector, tmp_path: Path, seconds: float, seed: int
) -> None:
    """Check all answers and writes of clients during faults, and again after restarts."""
    history, stop = ClientHistory(), Event()
    clients = [RandomClient(f"c{i}", seed, service.url, history, stop) for i in range(CLIENTS)]
    reader = EventStreamReader(service.url, seed, history, stop)
    watch_readers: dict[str, EventStreamReader] = {}
    for client in clients:
        for watch in watches_of(client.name):
            client.watch(watch, "*")
            path, since = f"/watches/{watch}/events", history.watch_changes[-1].label
            watch_readers[watch] = EventStreamReader(service.url, seed, history, stop, path, since)
    threads = [*clients, reader, *watch_readers.values()]
    for each in threads:
        each.start()
    try:
        injector.start()
        until = monotonic() + seconds
        while monotonic() < until and all(each.is_alive for each in clients):
            stop.wait(0.2)
        injector.stop()
        assert service.terminate() == 0, "shutdown under load failed"
        service.start()
    finally:
        stop.set()
        for each in threads:
            each.join()
    fault_list = ", ".join(injector.injected)
    print(f"\n{injector.kill_count} kills, {len(injector.injected)} faults: {fault_list}")
    print(
        f"{len(history.writes)} writes, answers: {by_kind(history.reads)}, {dict(history.retries)}"
    )
    for each in threads:
        if each.error is not None:
            raise each.error

    # After a restart without new writes, repeated reads return the same answers.
    service.kill()
    took = service.start()
    print(f"ready after {took:.1f} s")
    _repeat_reads(service, history, seed)
    last_client = RandomClient("last", seed, service.url, history, Event())
    for watch in watch_readers:
        last_client.watch(watch, "*")
    last = httpx.put(f"{service.url}/documents/last", json={}, params={"wait": "visible"})
    assert last.status_code == 200, last.text
    end = label_of(last.json()["label"])
    for each in (reader, *watch_readers.values()):
        each.read_up_to(end)
    full_reader = EventStreamReader(service.url, seed, history, Event())
    full_reader.read_up_to(end)
    assert reader.events == full_reader.events
    assert full_reader.events.pop() == (end, {"id": "last", "document": {}, "label": token_of(end)})
    collection = load_schema(tmp_path / "schema.toml").collections["documents"]
    streams = {watch: each.events for watch, each in watch_readers.items()}
    for watch, stream in streams.items():
        first_event = {"watch": watch, "id": "last", "event": "entered", "label": token_of(end)}
        assert stream.pop() == (end, first_event)
    print(
        f"{sum(map(len, streams.values()))} events of {len(history.watch_changes)} stored queries"
    )
    check(history, full_reader.events, collection, streams)

    assert "from the journal" not in service.log.read_text(), "a searcher lost its checkpoint"

    # The same holds if the searchers have to rebuild without a valid checkpoint.
    assert service.terminate() == 0
    (tmp_path / "state" / "documents-0" / "checkpoint").unlink()
    damaged = tmp_path / "state" / "documents-1" / "checkpoint"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    service.start()
    _repeat_reads(service, history, seed)


def _repeat_reads(service: ServiceProcess, history: ClientHistory, seed: int) -> None:
    """Repeat recent reads, among them the newest, and compare the answers."""
    repeatable = [each for each in history.reads if each.what != "get" and each.facet is None]
    newest = sorted(repeatable, key=lambda each: each.at)[-REPEATED:]
    with httpx.Client(base_url=service.url, timeout=30.0) as http:
        some = Random(seed).sample(newest, min(REPEATED // 2, len(newest)))
        for each in some + newest[-REPEATED // 2 :]:
            if each.begin:
                continue  # a later page, which needs a cursor
            parameters: dict[str, str | int] = {"q": each.query, "at": token_of(each.at)}
            if each.what == "search":
                parameters |= {"limit": each.limit, "snippets": 0, "sort": each.sort}
            answer = http.get(f"/{each.what}", params=parameters)
            assert answer.status_code == 200, f"{parameters}: {answer.text}"
            found = answer.json()
            hits = [(hit["id"], hit["score"], hit["label"]) for hit in found.get("hits", ())]
            before = [(id, score, token_of(label)) for id, score, label in each.hits]
            assert (found["total"], hits) == (each.total, before), parameters
