"""Watches through the clients."""

from __future__ import annotations

from uuid import uuid4

import pytest

from driftline import AsyncIndexClient, IndexClient
from driftline.index.client import NotFound, QueryRefused, WatchEvent
from tests.index.client.serving import Cut, InProcess, Proxy


def test_watch_reports_documents_that_enter_or_leave(service: InProcess, proxy: Proxy) -> None:
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
        proxy.plans.extend(Cut(200 + 60 * n) for n in range(20))
        with client.watch_events(rare, stored.label) as events:
            assert [next(events) for _ in expected] == expected
            assert proxy.connections > 3
        direct.remove_watch(rare)
        with pytest.raises(NotFound):
            direct.get_watch(rare)


async def test_the_client_for_asyncio_has_watches_as_well(service: InProcess) -> None:
    rare = f"w{uuid4().hex}"
    async with AsyncIndexClient(service.url, token=service.token, session=True) as client:
        stored = await client.put_watch(rare, rare, wait="visible")
        assert (await client.get_watch(rare)).q == rare
        written = await client.put(rare, {"title": rare})
        async with client.watch_events(rare, stored.label) as events:
            assert await anext(events) == WatchEvent(written.label, rare, "entered", rare)
        await client.remove_watch(rare)
