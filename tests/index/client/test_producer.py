"""Writes over ZeroMQ, and what becomes of records that are none."""

from __future__ import annotations

from time import monotonic, sleep
from uuid import uuid4

import httpx
import pytest

from driftline import IndexClient, IndexProducer, Producer
from driftline.index.client import Change
from driftline.index.documents.writes import WatchWrite, Write
from tests.index.client.serving import Serving

GOOD = Write("documents", "good", {"title": "Tea"}).record()

BAD: list[object] = [
    7,
    None,
    {},
    {**GOOD, "collection": "nowhere"},
    {**GOOD, "id": "x" * 600, "document": None},
    {**GOOD, "document": {"title": 7}},
    {**GOOD, "document": {7: "Tea"}},
    {**GOOD, "expected": "soon"},
    {**GOOD, "key": "k" * 201},
    {**GOOD, "more": 1},
    WatchWrite("nowhere", "w", "tea").record(),
    WatchWrite("documents", "w", "tea" * 2000).record(),
]


@pytest.fixture
def client(service: Serving) -> IndexClient:
    return IndexClient(service.url, token=service.token)


def test_writes_are_taken_once_and_can_be_read_after_their_label(
    service: Serving, client: IndexClient
) -> None:
    name = f"p{uuid4().hex}"
    begin = client.put(name, {"year": 0}).label
    with IndexProducer(service.zmq, name) as producer:
        for n in range(2000):
            producer.put(f"{name}-{n % 500}", {"title": name, "year": n})
        producer.put(name, {"year": 1}, if_label="none")  # does not hold
        producer.put(name, {"year": 2}, if_label=begin)
        producer.flush()
        assert producer.acknowledged == 2002
        assert client.count(name, after=producer.label).total == 500
        assert client.get(name, at=producer.label).document == {"year": 2}
        last = producer.label
    with IndexProducer(service.zmq, name, collection="strict") as producer:
        assert producer.acknowledged == 2002
        assert producer.label >= last
        producer.put(name, {"text": name})
        producer.flush()
        assert client.collection("strict").get(name, after=producer.label).document["text"] == name
    told: list[Change] = []
    with client.changes(begin) as changes:
        while not told or told[-1].document != {"year": 2}:
            told.append(next(changes))
    assert [each.document["year"] for each in told if each.document] == [*range(2000), 2]


def test_invalid_records_become_dead_letters(service: Serving, client: IndexClient) -> None:
    def dead_letters() -> int:
        bearer = {"Authorization": f"Bearer {service.token}"}
        text = httpx.get(f"{service.url}/metrics", headers=bearer).text
        (found,) = (x for x in text.splitlines() if x.startswith("driftline_service_dead_letters{"))
        return int(float(found.split()[-1]))

    name = f"p{uuid4().hex}"
    before = dead_letters()
    begin = client.put(name, {"year": 0}).label
    with Producer(service.zmq, name) as producer:
        for record in BAD:
            producer.send(record)
        producer.send(WatchWrite("documents", name, "(tea").record())  # it matches nothing
        producer.send(Write("documents", name, {"year": 1}).record())
        producer.flush()
        assert producer.acknowledged == len(BAD) + 2
        assert producer.below
    with client.changes(begin) as changes:
        assert next(changes).document == {"year": 1}
    until = monotonic() + 10
    while dead_letters() < before + len(BAD) and monotonic() < until:
        sleep(0.05)
    assert dead_letters() == before + len(BAD)
    assert "dead letter" in service.log.read_text()
    assert client.get(name, after=changes.at).document == {"year": 1}
