"""PageRank: how important the pages of a graph are, by the links between them.

Each page begins with a weight of 0.15 and divides 85 % of all weight that it gets among the pages
to which it links. A page passes on small weights together, once they are large enough. Links come
first, then the pages.

    {"page": "a", "link": "b"}
    {"page": "b", "link": "a"}
    {"page": "a"}
    {"page": "b"}

    driftline run examples/pagerank.py --input pages.jsonl --output out
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NotRequired, TypedDict

from driftline import Again, Context, Flow, ListState, ReducingState, ValueState

DAMPING = 0.85
SMALL = 0.02
"""A page keeps weights that are smaller in total."""


class Page(TypedDict):
    """A page, a link from it, or a weight that it gets."""

    page: str
    link: NotRequired[str]
    weight: NotRequired[float]


def rank(
    context: Context,
    page: Page,
    links: ListState[str],
    total: ReducingState[float],
    kept: ValueState[float],
) -> Iterator[tuple[str, float] | Again[Page]]:
    """Add a weight to the rank of a page, and pass most of it on."""
    if "link" in page:
        links.append(page["link"])
        return
    weight = page.get("weight", 1 - DAMPING)
    yield page["page"], total.add(weight)
    weight += kept.get(0.0)
    kept.set(0.0 if weight >= SMALL else weight)
    if weight >= SMALL:
        for link in links:
            yield Again({"page": link, "weight": DAMPING * weight / len(links)})


def add(one: float, other: float) -> float:
    """Return the sum of two weights."""
    return one + other


flow = Flow("page rank")
pages = flow.source("pages", of=Page).key_by("page")
pages.iterate(
    rank,
    ListState("links"),
    ReducingState("rank", add),
    ValueState("kept"),
    fields=("page", "rank"),
).sink("ranks")
