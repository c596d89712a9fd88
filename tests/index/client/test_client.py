"""The synchronous and the asyncio client, with a service in this process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import date
from uuid import uuid4

import pytest

from driftline import AsyncIndexClient, IndexClient
from driftline.index.client import (
    Conflict,
    Delete,
    FailedLine,
    Invalid,
    Line,
    NotAllowed,
    NotFound,
    QueryRefused,
    ServiceUnavailable,
    TooLarge,
    WatchEvent,
    Written,
)
from driftline.index.client.batches import LINES_MAX
from tests.index.client.serving import ConnectionFault, FaultyProxy, InProcessService

OF_SERVICES = {"numpy", "lark", "starlette", "uvicorn", "snowballstemmer"}


@pytest.fixture
def client(service: InProcessService) -> Iterator[IndexClient]:
    with IndexClient(service.url, token=service.token, session=True) as found:
        yield found


def word() -> str:
    """Return a word that is unique to a test."""
    return f"w{uuid4().hex}"


def test_document_is_searched_read_and_explained_as_of_any_label(
    client: IndexClient,
) -> None:
    rare, id = word(), word()
    first = client.put(id, {"title": "Tea", "text": f"leaves {rare} & more", "year": 1900})
    second = client.put(id, {"title": "Tea", "text": "no more"}, if_label=first.label)
    assert first.id == second.id == id
    assert first.label < second.label
    then = client.search(rare, at=first.label, fields=["year", "title"], facets=["tags"])
    assert (then.at, then.total, then.cursor, then.facets) == (first.label, 1, None, {"tags": ()})
    (hit,) = then.hits
    assert (hit.id, hit.label, hit.fields) == (id, first.label, {"title": "Tea", "year": 1900})
    assert hit.snippet == f"leaves <mark>{rare}</mark> &amp; more"
    assert client.search(rare, after=second.label).total == 0
    assert client.count(rare, at=first.label).total == 1
    assert client.explain(rare, id, at=first.label).score == hit.score
    assert client.get(id, at=first.label).document["year"] == 1900
    assert client.get(id, after=second.label).label == second.label
    gone = client.delete(id, wait="visible")
    assert client.delete(id).absent
    with pytest.raises(NotFound):
        client.get(id)
    assert client.get(id, at=second.label).document["text"] == "no more"
    assert client.label > gone.label


def test_any_text_may_be_an_id(client: IndexClient) -> None:
    for id in (".", "..", "a b", "ä/ö?#&%", "a%2Fb", "x:bulk", "\U0001f375", "+", "../x"):
        done = client.put(id, {"title": id})
        found = client.get(id)
        assert (found.id, found.label, found.document) == (id, done.label, {"title": id})
        assert client.delete(id).id == id


def test_pages_are_as_of_one_time_despite_later_writes(client: IndexClient) -> None:
    rare = word()
    labels = [each.label for each in all_written(client.bulk(documents(rare, 25)))]
    seen = []
    for page in client.search_all(rare, limit=10, after=max(labels), snippets=False):
        seen.append(page)
        client.put(f"{rare}-more{len(seen)}", {"title": rare})
        client.delete(f"{rare}-{len(seen) * 5}")
    assert [len(page.hits) for page in seen] == [10, 10, 5]
    assert len({page.at for page in seen}) == 1
    assert {hit.id for page in seen for hit in page.hits} == {f"{rare}-{n}" for n in range(25)}


def test_bulk_streams_lines_and_results_in_order(client: IndexClient) -> None:
    rare = word()
    taken = 0

    def lines() -> Iterator[Line]:
        nonlocal taken
        for line in documents(rare, LINES_MAX + 500):
            taken += 1
            yield line

    results = client.bulk(lines(), wait="visible")
    first = next(results)
    assert taken <= LINES_MAX + 1
    assert [first.id, *(each.id for each in results)] == [f"{rare}-{n}" for n in range(taken)]
    assert client.count(rare).total == taken == LINES_MAX + 500


def test_bulk_reports_bad_lines_and_writes_the_others(client: IndexClient) -> None:
    rare = word()
    lines: list[Line] = [
        {"id": rare, "title": "Tea", "tags": [date(2024, 5, 17)]},
        {"id": "", "title": "Tea"},
        {"title": "Tea"},
        {"id": f"{rare}1", "title": 7},
        {"id": f"{rare}2", "title": {3}},
        {"id": f"{rare}3", "title": "\ud800"},
        "junk",  # type: ignore[list-item]
        {"id": f"{rare}4", "title": "\n"},
        Delete(f"{rare}4"),
        {"delete": f"{rare}5"},
    ]
    found = list(client.bulk(lines))
    assert [type(each) for each in found] == [Written, *[FailedLine] * 6, *[Written] * 3]
    errors = [each.error for each in found if isinstance(each, FailedLine)]
    assert all(isinstance(each, Invalid) for each in errors)
    assert (found[3].id, errors[2].field) == (f"{rare}1", "title")  # type: ignore[attr-defined]
    for error, text in zip(errors[3:], ("is a set", "surrogates", "not a line"), strict=True):
        assert text in str(error)
    assert client.get(rare).document["tags"] == ["2024-05-17"]
    with pytest.raises(Invalid, match="cannot be sent as JSON"):
        client.put(rare, {"title": float("inf")})


def test_errors_have_a_class_and_machine_readable_details(
    client: IndexClient, service: InProcessService
) -> None:
    id = word()
    with pytest.raises(QueryRefused) as query:
        client.search("cat (tea")
    assert query.value.position == 8
    assert str(query.value).splitlines()[1:] == ["  cat (tea", "          ^"]
    done = client.put(id, {"title": "Tea"}, if_label="none")
    with pytest.raises(Conflict) as conflict:
        client.put(id, {"title": "Tea"}, if_label="none")
    assert conflict.value.label == done.label
    with pytest.raises(Invalid, match="label"):
        client.get(id, at="yesterday")
    with pytest.raises(TooLarge):
        client.put(id, {"title": "x" * (9 << 20)})
    with pytest.raises(Invalid, match="empty"):
        client.put("", {})
    with IndexClient(service.url, token=service.reader) as reader:
        assert reader.get(id).label == done.label
        with pytest.raises(NotAllowed):
            reader.put(id, {})
    with IndexClient(service.url) as stranger, pytest.raises(NotAllowed):
        stranger.get(id)


def test_wrong_address_raises_service_unavailable() -> None:
    for url in ("tcp://127.0.0.1:1", "http://"):
        with pytest.raises(ServiceUnavailable, match="is not an address"):
            IndexClient(url)
    nowhere = IndexClient("http://127.0.0.1:1", retry_s=0)
    with nowhere, pytest.raises(ServiceUnavailable, match="cannot be reached"):
        nowhere.get("1")


def test_changes_can_be_read_from_any_label(client: IndexClient) -> None:
    id = word()
    with client.changes() as changes:
        first = client.put(id, {"year": 1})
        last = client.delete(id)
        received = [next(changes), next(changes)]
        assert [(each.id, each.label) for each in received] == [(id, first.label), (id, last.label)]
        assert [each.document for each in received] == [{"year": 1}, None]
        assert changes.at == last.label
    with client.changes(first.label, until=last.label) as changes:
        assert list(changes) == received[1:]
    assert list(client.changes(last.label, until=last.label)) == []


async def test_async_client_offers_the_same_operations(service: InProcessService) -> None:
    rare = word()
    async with AsyncIndexClient(service.url, token=service.token, session=True) as client:
        start = await client.put(rare, {"title": "begin"})
        puts = (client.put(f"{rare}-{n}", {"title": rare}) for n in range(50))
        written = await asyncio.gather(*puts)
        assert (await client.count(rare)).total == 50
        assert client.label == max(each.label for each in written)
        pages = [page async for page in client.search_all(rare, limit=20)]
        assert [len(page.hits) for page in pages] == [20, 20, 10]
        changes = client.changes(start.label)
        received = [(await anext(changes)).label for _ in range(50)]
        await changes.close()
        assert received == sorted(each.label for each in written)

        async def deletions() -> AsyncIterator[Line]:
            for n in range(50):
                yield Delete(f"{rare}-{n}")

        gone = [each async for each in client.bulk(deletions())]
        assert [each.id for each in gone] == [f"{rare}-{n}" for n in range(50)]
        assert (await client.count(rare)).total == 0
        with pytest.raises(QueryRefused):
            await client.search("(")


def test_client_import_loads_few_modules() -> None:
    found = loaded_modules("IndexClient, AsyncIndexClient")
    assert "httpx" in found
    assert not {each.partition(".")[0] for each in found} & {*OF_SERVICES, "lmdb", "zmq"}
    assert not [each for each in found if each.startswith(("driftline.deploy", "driftline.serve"))]
    assert not {each.partition(".")[0] for each in loaded_modules("IndexProducer")} & OF_SERVICES


def loaded_modules(names: str) -> list[str]:
    """Return the modules that an import of public names loads."""
    code = f"import sys; from driftline import {names}; print(*sys.modules)"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()


def documents(rare: str, count: int) -> list[Line]:
    return [{"id": f"{rare}-{n}", "title": rare} for n in range(count)]


def all_written(results: Iterator[Written | FailedLine]) -> list[Written]:
    found = []
    for each in results:
        assert isinstance(each, Written), each
        found.append(each)
    return found


def test_watch_reports_documents_that_enter_or_leave(
    service: InProcessService, proxy: FaultyProxy
) -> None:
    rare = f"w{uuid4().hex}"
    with (
        IndexClient(service.url, token=service.token, session=True) as direct,
        IndexClient(proxy.url, token=service.token) as client,
    ):
        stored = direct.put_watch(rare, f"title:{rare}")
        assert (direct.get_watch(rare).q, direct.get_watch(rare).label) == (
            f"title:{rare}",
            stored.label,
        )
        with pytest.raises(QueryRefused):
            direct.put_watch(rare, "(tea")
        expected = []
        for n in range(12):
            begins = direct.put(f"{rare}{n}", {"title": rare})
            expected.append(WatchEvent(begins.label, f"{rare}{n}", "entered", rare))
            direct.put(f"{rare}{n}", {"title": rare, "year": n})
            ceases = direct.delete(f"{rare}{n}")
            expected.append(WatchEvent(ceases.label, f"{rare}{n}", "left", rare))
        proxy.faults.extend(ConnectionFault(200 + 60 * n) for n in range(20))
        with client.watch_events(rare, stored.label) as events:
            assert [next(events) for _ in expected] == expected
            assert proxy.connections > 3
        direct.remove_watch(rare)
        with pytest.raises(NotFound):
            direct.get_watch(rare)


async def test_async_client_supports_watches(service: InProcessService) -> None:
    rare = f"w{uuid4().hex}"
    async with AsyncIndexClient(service.url, token=service.token, session=True) as client:
        stored = await client.put_watch(rare, rare, wait="visible")
        assert (await client.get_watch(rare)).q == rare
        written = await client.put(rare, {"title": rare})
        async with client.watch_events(rare, stored.label) as events:
            assert await anext(events) == WatchEvent(written.label, rare, "entered", rare)
        await client.remove_watch(rare)
