"""Flow with windows, late elements and a state with a time to live."""

from __future__ import annotations

import operator
from random import Random
from typing import Any

from driftline import Count, Flow, ReducingState, Sum, Tumbling

Sale = dict[str, Any]


def count(sale: Sale, seen: ReducingState[int]) -> tuple[str, int]:
    return sale["shop"], seen.add(1)


flow = Flow("hourly", groups=16)
sales = flow.source("sales", of=Sale, event_time="at", max_delay="5m")
hours = sales.key_by("shop").window(Tumbling("1h"), lateness="2m")
hours.aggregate(count=Count(), total=Sum("price")).sink("hours")
hours.late.sink("late")
sales.key_by("shop").scan(count, ReducingState("seen", operator.add, ttl="30m")).sink("seen")


def records() -> list[object]:
    """Return 400 sales, one each 40 seconds, some out of order and some late."""
    chance = Random(7)
    return [
        {
            "shop": chance.choice("abc"),
            "at": 40 * i - chance.choice((0, 0, 200, 900)),
            "price": i,
            "id": i,
        }
        for i in range(400)
    ]
