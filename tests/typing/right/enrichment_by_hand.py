"""Enrichment by a state: a union of two types, told apart by a field."""

from typing import Literal, TypedDict

from driftline import Context, Flow, ValueState


class Product(TypedDict):
    """A row of the table; replaces the product's earlier row. The price is in cents."""

    kind: Literal["product"]
    product: str
    name: str
    price: int


class Order(TypedDict):
    """An order of some pieces of a product."""

    kind: Literal["order"]
    product: str
    pieces: int


Row = tuple[str, int]
"""Name and price."""

Priced = tuple[str, str | None, int]
"""Product, its name (None: unknown), and the cost of the order in cents."""


def enrich(context: Context, record: Product | Order, row: ValueState[Row]) -> list[Priced]:
    """Return an order with its product's name and its cost; store a product without output."""
    if record["kind"] == "product":
        row.set((record["name"], record["price"]))
        return []
    name, price = row.get((None, 0))
    return [(record["product"], name, record["pieces"] * price)]


flow = Flow("enrichment")
priced = (
    flow.union(flow.source("products", of=Product), flow.source("orders", of=Order))
    .key_by("product")
    .process(enrich, ValueState("row"), fields=("product", "name", "cost"))
)
priced.filter(lambda order: order[1] is not None).sink("priced")
priced.filter(lambda order: order[1] is None).map(lambda order: order[0]).sink("unknown")
