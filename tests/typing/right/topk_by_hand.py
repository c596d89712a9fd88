"""The best products so far: two keyed operators, one after the other."""

import operator
from typing import TypedDict

from driftline import Context, Flow, MapState, ReducingState

K = 3


class Sale(TypedDict):
    """A sale of some pieces of a product."""

    product: str
    pieces: int


def add(sale: Sale, total: ReducingState[int]) -> tuple[str, int]:
    """Return the product, and the number of its pieces sold so far."""
    return sale["product"], total.add(sale["pieces"])


def rank(
    context: Context, sold: tuple[str, int], best: MapState[str, int]
) -> list[tuple[tuple[str, int], ...]]:
    """Return the K best products, ties by name; nothing if the product is not among them."""
    product, total = sold
    best[product] = total
    ranking = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    for name, _ in ranking[K:]:
        del best[name]
    return [tuple(ranking[:K])] if product in best else []


flow = Flow("top k")
(
    flow.source("sales", of=Sale)
    .key_by("product")
    .scan(add, ReducingState("total", operator.add), fields=("product", "total"))
    .key_by(lambda sold: "all")
    .process(rank, MapState("best"))
    .sink("best")
)
