"""Clients with broken connections and busy services: the results are the same as without faults."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from uuid import uuid4

import pytest

from driftline import AsyncIndexClient, IndexClient
from driftline.index.client import Busy, Change, Line, ServiceError, ServiceUnavailable, Written
from driftline.index.client.errors import (
    NoLongerRetained,
    StorageFull,
    error_of_response,
    parse_error,
)
from tests.index.client.serving import ConnectionFault, FaultyProxy, InProcessService, raw_response

BUSY = b'{"error":{"code":"busy","message":"later"}}'


@pytest.fixture
def client(service: InProcessService, proxy: FaultyProxy) -> Iterator[IndexClient]:
    """Return a client that uses the proxy."""
    with IndexClient(proxy.url, token=service.token, session=True) as found:
        yield found


@pytest.fixture
def direct(service: InProcessService) -> Iterator[IndexClient]:
    with IndexClient(service.url, token=service.token, session=True) as found:
        yield found


def word() -> str:
    return f"w{uuid4().hex}"


def changes_since(direct: IndexClient, label: str, until: str) -> list[Change]:
    """Return all changes after a label, up to and including another one."""
    found = []
    with direct.changes(label) as changes:
        for change in changes:
            found.append(change)
            if change.label >= until:
                return found
    raise AssertionError


def test_write_with_a_lost_answer_is_applied_once(
    client: IndexClient, direct: IndexClient, proxy: FaultyProxy
) -> None:
    id = word()
    begin = direct.put(id, {"year": 0}).label
    proxy.faults.extend([ConnectionFault(0), ConnectionFault(20), ConnectionFault(100)])
    written = client.put(id, {"year": 1}, if_label=begin)
    assert written.repeated
    assert proxy.connections == 4
    proxy.close_all()
    proxy.faults.append(ConnectionFault(0))
    gone = client.delete(id)
    assert gone.repeated
    end = direct.put(id, {"year": 2}).label
    received = changes_since(direct, begin, end)
    assert [each.label for each in received] == [written.label, gone.label, end]


def test_write_without_a_key_is_not_retried(
    client: IndexClient, direct: IndexClient, proxy: FaultyProxy
) -> None:
    id = word()
    begin = direct.put(id, {"year": 0}).label
    proxy.faults.append(ConnectionFault(0))
    with pytest.raises(ServiceUnavailable):
        client.put(id, {"year": 1}, key="")
    end = direct.put(id, {"year": 2}).label
    assert len(changes_since(direct, begin, end)) == 2
    assert proxy.connections == 1


def test_reads_are_retried(client: IndexClient, direct: IndexClient, proxy: FaultyProxy) -> None:
    id = word()
    direct.put(id, {"title": id}, wait="visible")
    proxy.faults.extend(
        [
            ConnectionFault(0),
            ConnectionFault(150),
            ConnectionFault(response=raw_response("503 Service Unavailable", b"gone")),
        ]
    )
    assert client.count(id).total == 1
    assert proxy.connections == 4


def test_client_waits_for_retry_after(
    service: InProcessService, client: IndexClient, direct: IndexClient, proxy: FaultyProxy
) -> None:
    direct.put("1", {"title": "Tea"}, wait="visible")
    proxy.faults.append(
        ConnectionFault(response=raw_response("429 Too Many Requests", BUSY, "Retry-After: 1"))
    )
    began = monotonic()
    client.get("1")
    assert monotonic() - began >= 1
    proxy.faults.append(
        ConnectionFault(response=raw_response("429 Too Many Requests", BUSY, "Retry-After: 60"))
    )
    proxy.close_all()
    with IndexClient(proxy.url, token=service.token, retry_s=5) as hasty:
        with pytest.raises(Busy) as busy:
            hasty.get("1")
        assert busy.value.retry_after_s == 60
        assert monotonic() - began < 20


def test_client_with_zero_retry_time_does_not_retry(
    service: InProcessService, proxy: FaultyProxy
) -> None:
    proxy.faults.append(ConnectionFault(0))
    with IndexClient(proxy.url, token=service.token, retry_s=0) as client:
        with pytest.raises(ServiceUnavailable):
            client.get("1")
        assert proxy.connections == 1


def test_events_arrive_once_in_order_despite_broken_connections(
    client: IndexClient, direct: IndexClient, proxy: FaultyProxy
) -> None:
    id = word()
    begin = direct.put(id, {"year": 0}).label
    lines: list[Line] = [{"id": f"{id}{n}", "title": "Grüner Tee 🍵"} for n in range(60)]
    written = [each.label for each in direct.bulk(lines) if isinstance(each, Written)]
    expected = changes_since(direct, begin, written[-1])
    assert len(expected) == 60
    # The headers take about 200 bytes.
    proxy.faults.extend(ConnectionFault(200 + 37 * n) for n in range(40))
    with client.changes(begin) as changes:
        assert [next(changes) for _ in expected] == expected
        assert proxy.connections > 10
        late = direct.put(id, {"year": 1})
        assert next(changes).label == late.label


def test_stream_from_now_has_no_gap_after_a_reconnect(
    client: IndexClient, direct: IndexClient, proxy: FaultyProxy
) -> None:
    """The connection breaks before the first event, which happens before the reconnect."""
    changes = client.changes()
    proxy.close_all()
    proxy.faults.extend([ConnectionFault(0), ConnectionFault(0)])
    written = direct.put(word(), {"year": 1})
    with changes:
        assert next(changes).label == written.label
    assert proxy.connections == 4


def test_bulk_with_truncated_answers_is_applied_once(
    client: IndexClient, direct: IndexClient, proxy: FaultyProxy
) -> None:
    id = word()
    begin = direct.put(id, {"year": 0}).label
    lines: list[Line] = [{"id": f"{id}{n % 20}", "year": n} for n in range(60)]
    proxy.faults.extend(
        [
            ConnectionFault(0),
            ConnectionFault(300),
            ConnectionFault(2000),
            ConnectionFault(1500),
            ConnectionFault(4000),
        ]
    )
    results = list(client.bulk(lines))
    labels = [each.label for each in results if isinstance(each, Written)]
    assert [each.id for each in results] == [line["id"] for line in lines if isinstance(line, dict)]
    received = changes_since(direct, begin, max(labels))
    assert sorted(labels) == [each.label for each in received]
    by_label = {each.label: each for each in received}
    assert [by_label[each].document for each in labels] == [{"year": n} for n in range(60)]
    assert proxy.connections == 6


async def test_async_client_resumes_after_broken_connections(
    service: InProcessService, direct: IndexClient, proxy: FaultyProxy
) -> None:
    id = word()
    begin = direct.put(id, {"year": 0}).label
    async with AsyncIndexClient(proxy.url, token=service.token) as client:
        proxy.faults.append(ConnectionFault(0))
        assert (await client.put(id, {"year": 1})).repeated
        lines: list[Line] = [{"id": f"{id}{n}", "year": n} for n in range(30)]
        assert len([each async for each in client.bulk(lines)]) == 30
    async with AsyncIndexClient(proxy.url, token=service.token) as client:
        proxy.faults.extend(ConnectionFault(200 + 50 * n) for n in range(20))
        async with client.changes(begin) as changes:
            received = [await anext(changes) for _ in range(31)]
        assert received == changes_since(direct, begin, received[-1].label)
        assert len({each.label for each in received}) == 31


def test_rare_error_codes_map_to_their_classes() -> None:
    for code, details, kind in (
        ("retained", {"oldest": "00000000000pqs"}, NoLongerRetained),
        ("full", {}, StorageFull),
        ("teapot", {}, ServiceError),
    ):
        error = parse_error({"error": {"code": code, "message": "no", **details}})
        assert type(error) is kind
        assert (error.code, error.message, error.details) == (code, "no", details)
    assert type(error_of_response(502, b"<html>")) is ServiceUnavailable
