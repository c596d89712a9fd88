"""Clients of `driftline serve`: writes over ZeroMQ, the examples of the client page, and a restart
after a kill."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from uuid import uuid4

import certifi
import httpx
import pytest

from driftline import IndexClient, IndexProducer, Producer
from driftline.index.client import Change, Line, Written
from driftline.index.documents.writes import WatchWrite, Write
from tests.index.client.serving import ClientTestService
from tests.index.truth.service import served
from tests.test_docs import SERVED, blocks


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientTestService]:
    found = ClientTestService(tmp_path_factory.mktemp("service"))
    with served(found):
        yield found


@pytest.fixture
def client(service: ClientTestService) -> IndexClient:
    return IndexClient(service.url, token=service.token)


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


def test_writes_are_applied_once_and_readable_after_their_label(
    service: ClientTestService, client: IndexClient
) -> None:
    name = f"p{uuid4().hex}"
    begin = client.put(name, {"year": 0}).label
    with IndexProducer(service.zmq, name) as producer:
        for n in range(600):
            producer.put(f"{name}-{n % 150}", {"title": name, "year": n})
        producer.put(name, {"year": 1}, if_label="none")  # the condition does not hold
        producer.put(name, {"year": 2}, if_label=begin)
        producer.flush()
        assert producer.acknowledged == 602
        assert client.count(name, after=producer.label).total == 150
        assert client.get(name, at=producer.label).document == {"year": 2}
        last = producer.label
    with IndexProducer(service.zmq, name, collection="strict") as producer:
        assert producer.acknowledged == 602
        assert producer.label >= last
        producer.put(name, {"text": name})
        producer.flush()
        assert client.collection("strict").get(name, after=producer.label).document["text"] == name
    received: list[Change] = []
    with client.changes(begin) as changes:
        while not received or received[-1].document != {"year": 2}:
            received.append(next(changes))
    assert [each.document["year"] for each in received if each.document] == [*range(600), 2]


def test_invalid_records_become_dead_letters(
    service: ClientTestService, client: IndexClient
) -> None:
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
        # The service stores a watch with an invalid query; it matches nothing.
        producer.send(WatchWrite("documents", name, "(tea").record())
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


def test_session_reads_its_own_writes(service: ClientTestService) -> None:
    """A write without a key is answered before it is visible."""
    with IndexClient(service.url, token=service.token, session=True) as client:
        rare = f"w{uuid4().hex}"
        for n in range(10):
            client.collection("strict").put(f"{rare}{n}", {"text": rare}, key="")
            assert client.collection("strict").count(rare).total == n + 1


def test_python_blocks_on_page_run(
    service: ClientTestService,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(f"{service.token}\n")
    shutil.copy(certifi.where(), tmp_path / "authority.pem")
    names: dict[str, object] = {"documents": [("4", {"title": "Green tea"})]}
    for block in blocks(SERVED, "python"):
        text = block.replace('"http://127.0.0.1:8080"', f"{service.url!r}, token={service.token!r}")
        exec(text.replace("tcp://127.0.0.1:5555", service.zmq), names)
    output = capsys.readouterr().out
    assert "<mark>Tea</mark>" in output
    index = names["index"]
    assert isinstance(index, IndexClient)
    assert {hit.id for hit in index.search("title:(rice OR coffee)").hits} == {"2", "3"}
    assert output.splitlines()[-1].endswith(" 1 None")
    index.close()


def test_killed_service_has_each_write_once_after_a_restart(service: ClientTestService) -> None:
    bulk: list[Line] = [{"id": f"b{n}", "year": n} for n in range(400)]
    with (
        IndexClient(service.url, token=service.token) as client,
        IndexClient(service.url, token=service.token) as reader,
    ):
        begin = client.put("begin", {}).label
        changes = reader.changes(begin)
        sending = Thread(target=_send, args=(service, 400))
        sending.start()
        labels: list[str] = []
        restart = Thread()
        restart.start()
        for number, result in enumerate(client.bulk(bulk)):
            if number in (100, 300):
                restart.join()
                service.kill()
                restart = Thread(target=service.start)
                restart.start()
            assert isinstance(result, Written), result
            labels.append(result.label)
        single = client.put("one", {"year": 1}, if_label="none")
        sending.join()
        restart.join()
        received = [next(changes) for _ in range(801)]
        assert len({each.label for each in received}) == 801
        assert [each.label for each in received] == sorted(each.label for each in received)
        by_kind = {kind: [each for each in received if each.id[0] == kind] for kind in "bpo"}
        assert sorted(each.label for each in by_kind["b"]) == sorted(labels)
        assert {each.id for each in by_kind["b"]} == {f"b{n}" for n in range(400)}
        assert [each.id for each in by_kind["p"]] == [f"p{n}" for n in range(400)]
        assert [each.label for each in by_kind["o"]] == [single.label]


def _send(serving: ClientTestService, count: int) -> None:
    with IndexProducer(serving.zmq, "sender") as producer:
        for n in range(count):
            producer.put(f"p{n}", {"year": n})
