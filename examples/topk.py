"""Top k: the ten products that sold best in the last hour, each minute.

Hopping windows of an hour sum the pieces of each product, on all nodes in parallel. Each row has
the last microsecond of its hour as event time. So windows of one minute then collect the rows of
all products with the same hour.

    {"product": "tea", "at": "2026-03-01T12:00:05Z", "pieces": 2}

    driftline run examples/topk.py --input sales.jsonl --output out
"""

from typing import TypedDict

from driftline import Flow, Hopping, Sum, Top, Tumbling


class Sale(TypedDict):
    """A sale of some pieces of a product."""

    product: str
    at: str
    pieces: int


flow = Flow("top k")
hours = (
    flow.source("sales", of=Sale, event_time="at", max_delay="10s")
    .key_by("product")
    .window(Hopping("1h", every="1m"))
    .aggregate(pieces=Sum("pieces"), name="sum of an hour")
)
best = hours.key_by(lambda row: "all").window(Tumbling("1m")).aggregate(best=Top(10, by="pieces"))
best.map(
    lambda row: {
        "until": row["end"],
        "best": [(product["key"], product["pieces"]) for product in row["best"]],
    }
).sink("best")
