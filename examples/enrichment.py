"""Enrichment: the price that a product had at the time of its order, from a table that changes.

An order finds the newest row of its product that is at most 30 days old at the event time of the
order. The order waits until all rows up to its event time have arrived.

    {"product": "p-1", "at": "2026-03-01T00:00:00Z", "name": "tea", "price": 300}   first file
    {"product": "p-1", "at": "2026-03-01T12:00:05Z", "pieces": 2}                   second file

    driftline run examples/enrichment.py --input products.jsonl --input orders.jsonl --output out
"""

from typing import TypedDict

from driftline import Flow


class Product(TypedDict):
    """A row of the table: from time `at` on, a product has this name and this price, in cents."""

    product: str
    at: str
    name: str
    price: int


class Order(TypedDict):
    """An order of some pieces of a product."""

    product: str
    at: str
    pieces: int


flow = Flow("enrichment")
products = flow.source("products", of=Product, event_time="at")
orders = flow.source("orders", of=Order, event_time="at", max_delay="30s")
pairs = orders.as_of(products, on="product", tolerance="30d")
known, unknown = pairs.split(lambda pair: pair[1] is not None)
known.map(
    lambda pair: {**pair[0], "name": pair[1]["name"], "cost": pair[0]["pieces"] * pair[1]["price"]}
).sink("priced")
unknown.map(lambda pair: pair[0]).sink("unknown")
