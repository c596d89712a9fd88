"""Clients whose connections break, and services that are busy: what is read, written and followed
is the same as if nothing had happened."""

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
from tests.index.client.serving import Cut, InProcess, Proxy, refusal

BUSY = b'{"error":{"code":"busy","message":"later"}}'


@pytest.fixture
def client(service: InProcess, proxy: Proxy) -> Iterator[IndexClient]:
    """A client behind the proxy."""
    with IndexClient(proxy.url, token=service.token, session=True) as found:
        yield found


@pytest.fixture
def direct(service: InProcess) -> Iterator[IndexClient]:
    with IndexClient(service.url, token=service.token, session=True) as found:
        yield found


def word() -> str:
    return f"w{uuid4().hex}"


def changes_since(direct: IndexClient, label: str, until: str) -> list[Change]:
    """All changes behind a label, up to that with another one."""
    found = []
    with direct.changes(label) as changes:
        for change in changes:
            found.append(change)
            if change.label >= until:
                return found
    raise AssertionError


def test_a_write_whose_answer_is_lost_is_done_once(
    client: IndexClient, direct: IndexClient, proxy: Proxy
) -> None:
    id = word()
    begin = direct.put(id, {"year": 0}).label
    proxy.plans.extend([Cut(0), Cut(20), Cut(100)])
    written = client.put(id, {"year": 1}, if_label=begin)
    assert written.repeated
    assert proxy.connections == 4
    proxy.cut()
    proxy.plans.append(Cut(0))
    gone = client.delete(id)
    assert gone.repeated
    end = direct.put(id, {"year": 2}).label
    received = changes_since(direct, begin, end)
    assert [each.label for each in received] == [written.label, gone.label, end]


def test_a_write_without_a_key_is_sent_once_only(
    client: IndexClient, direct: IndexClient, proxy: Proxy
) -> None:
    id = word()
    begin = direct.put(id, {"year": 0}).label
    proxy.plans.append(Cut(0))
    with pytest.raises(ServiceUnavailable):
        client.put(id, {"year": 1}, key="")
    end = direct.put(id, {"year": 2}).label
    assert len(changes_since(direct, begin, end)) == 2
    assert proxy.connections == 1


def test_reads_are_tried_again(client: IndexClient, direct: IndexClient, proxy: Proxy) -> None:
    id = word()
    direct.put(id, {"title": id}, wait="visible")
    proxy.plans.extend([Cut(0), Cut(150), Cut(says=refusal("503 Service Unavailable", b"gone"))])
    assert client.count(id).total == 1
    assert proxy.connections == 4


def test_client_waits_for_retry_after(
    service: InProcess, client: IndexClient, direct: IndexClient, proxy: Proxy
) -> None:
    direct.put("1", {"title": "Tea"}, wait="visible")
    proxy.plans.append(Cut(says=refusal("429 Too Many Requests", BUSY, "Retry-After: 1")))
    began = monotonic()
    client.get("1")
    assert monotonic() - began >= 1
    proxy.plans.append(Cut(says=refusal("429 Too Many Requests", BUSY, "Retry-After: 60")))
    proxy.cut()
    with IndexClient(proxy.url, token=service.token, retry_s=5) as hasty:
        with pytest.raises(Busy) as busy:
            hasty.get("1")
        assert busy.value.retry_after_s == 60
        assert monotonic() - began < 20


def test_client_with_zero_retry_time_does_not_retry(service: InProcess, proxy: Proxy) -> None:
    proxy.plans.append(Cut(0))
    with IndexClient(proxy.url, token=service.token, retry_s=0) as client:
        with pytest.raises(ServiceUnavailable):
            client.get("1")
        assert proxy.connections == 1


def test_events_come_once_and_in_order_wherever_the_connection_breaks(
    client: IndexClient, direct: IndexClient, proxy: Proxy
) -> None:
    id = word()
    begin = direct.put(id, {"year": 0}).label
    lines: list[Line] = [{"id": f"{id}{n}", "title": "Grüner Tee 🍵"} for n in range(60)]
    written = [each.label for each in direct.bulk(lines) if isinstance(each, Written)]
    expected = changes_since(direct, begin, written[-1])
    assert len(expected) == 60
    proxy.plans.extend(Cut(200 + 37 * n) for n in range(40))  # headers have some 200 bytes
    with client.changes(begin) as changes:
        assert [next(changes) for _ in expected] == expected
        assert proxy.connections > 10
        late = direct.put(id, {"year": 1})
        assert next(changes).label == late.label


def test_a_stream_from_now_on_has_no_gap(
    client: IndexClient, direct: IndexClient, proxy: Proxy
) -> None:
    """The connection breaks before the first event, which comes while there is none."""
    changes = client.changes()
    proxy.cut()
    proxy.plans.extend([Cut(0), Cut(0)])
    written = direct.put(word(), {"year": 1})
    with changes:
        assert next(changes).label == written.label
    assert proxy.connections == 4


def test_a_bulk_whose_answers_are_cut_is_done_once(
    client: IndexClient, direct: IndexClient, proxy: Proxy
) -> None:
    id = word()
    begin = direct.put(id, {"year": 0}).label
    lines: list[Line] = [{"id": f"{id}{n % 20}", "year": n} for n in range(60)]
    proxy.plans.extend([Cut(0), Cut(300), Cut(2000), Cut(1500), Cut(4000)])
    results = list(client.bulk(lines))
    labels = [each.label for each in results if isinstance(each, Written)]
    assert [each.id for each in results] == [line["id"] for line in lines if isinstance(line, dict)]
    received = changes_since(direct, begin, max(labels))
    assert sorted(labels) == [each.label for each in received]
    by_label = {each.label: each for each in received}
    assert [by_label[each].document for each in labels] == [{"year": n} for n in range(60)]
    assert proxy.connections == 6


async def test_async_client_resumes_after_broken_connections(
    service: InProcess, direct: IndexClient, proxy: Proxy
) -> None:
    id = word()
    begin = direct.put(id, {"year": 0}).label
    async with AsyncIndexClient(proxy.url, token=service.token) as client:
        proxy.plans.append(Cut(0))
        assert (await client.put(id, {"year": 1})).repeated
        lines: list[Line] = [{"id": f"{id}{n}", "year": n} for n in range(30)]
        assert len([each async for each in client.bulk(lines)]) == 30
    async with AsyncIndexClient(proxy.url, token=service.token) as client:
        proxy.plans.extend(Cut(200 + 50 * n) for n in range(20))
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
