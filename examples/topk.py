"""Top k: the three products that have sold best so far, each time that one of them sells.

The first keyed operator adds up the pieces of each product, on all nodes at once. The second sees
all products at one key, and keeps no more than the best.

    {"product": "tea", "pieces": 2}

    driftline run examples/topk.py --input sales.jsonl --output out
"""

import operator
from typing import TypedDict

from driftline import Context, Flow, MapState, ReducingState

K = 3


class Sale(TypedDict):
    """Some pieces of a product are sold."""

    product: str
    pieces: int


def add(sale: Sale, total: ReducingState[int]) -> tuple[str, int]:
    """The product and how many pieces of it have been sold."""
    return sale["product"], total.add(sale["pieces"])


def rank(
    context: Context, sold: tuple[str, int], best: MapState[str, int]
) -> list[tuple[tuple[str, int], ...]]:
    """The best, the very best first, if the product is one of them; equals by name."""
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
