"""Enrichment: orders with name and price of their product, from a table that changes.

An order gets the row of the table at the order's place in the total order, also in a replay after a
failure. Record n of both files has time n; at equal times the first file comes first. Orders of
unknown products go to another sink.

    {"kind": "product", "product": "p-1", "name": "tea", "price": 300}    in the first file
    {"kind": "order", "product": "p-1", "pieces": 2}                      in the second

    driftline run examples/enrichment.py --input products.jsonl --input orders.jsonl --output out
"""

from typing import Literal, TypedDict

from driftline import Context, Flow, ValueState


class Product(TypedDict):
    """A row of the table, which replaces an earlier row of the product; the price is in cents."""

    kind: Literal["product"]
    product: str
    name: str
    price: int


class Order(TypedDict):
    """A customer orders some pieces of a product."""

    kind: Literal["order"]
    product: str
    pieces: int


Row = tuple[str, int]
"""Name and price."""

Priced = tuple[str, str | None, int]
"""Product, its name (None: unknown), and the cost of an order in cents."""


def enrich(context: Context, record: Product | Order, row: ValueState[Row]) -> list[Priced]:
    """An order with its product's name and cost; a product is stored and gives no output."""
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
