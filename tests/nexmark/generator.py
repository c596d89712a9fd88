"""Generator of Nexmark events: persons, auctions, bids, and the exchange rates of currencies.

Events arrive in the order of their ids. An event arrives up to MAX_DELAY seconds after its time, so
events are out of order, and many have equal times. Some persons and bids arrive up to LATE seconds
later still. Sellers and bidders may be persons that arrive later, and bids may precede their
auction.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

Event = dict[str, Any]

MAX_DELAY = 5
LATE = 60
LATE_SHARE = 0.08
"""Share of the persons and bids that arrive later than MAX_DELAY after their time."""

START = 1_700_000_000
RATE = 6
"""Events per second."""
LULL_EVERY, LULL = 225, 40
"""Number of events after which nothing happens for some seconds. A rate follows."""

KINDS = {
    **dict.fromkeys((5, 35), "person"),
    **dict.fromkeys((10, 30, 40), "auction"),
    **dict.fromkeys((0, 20, 25, 45), "rate"),
}
"""Kind of the events with these numbers, of each fifty; the others are bids."""

CURRENCIES = ("EUR", "GBP")
STATES = ("OR", "ID", "CA", "WA")
CATEGORIES = (10, 11, 12, 13)


def generate(count: int, seed: int) -> Iterator[Event]:
    """Yield a number of events that a seed determines."""
    chance = Random(seed)
    persons = auctions = 0
    closings: set[tuple[int, int]] = set()
    for number in range(1, count + 1):
        kind = KINDS.get(number % 50, "bid")
        time = START + number // RATE + LULL * (number // LULL_EVERY)
        time -= chance.randrange(MAX_DELAY + 1)
        if kind in ("person", "bid") and chance.random() < LATE_SHARE:
            time -= chance.randrange(1, LATE + 1)
        if kind == "person":
            persons += 1
            more: Event = {
                "person": persons,
                "name": f"person {persons}",
                "city": f"city {persons % 7}",
                "state": chance.choice(STATES),
            }
        elif kind == "auction":
            auctions += 1
            seller = chance.choice((1, 2, *range(max(1, persons - 1), persons + 4)))
            expires = time + chance.randrange(10, 60)
            while (seller, expires) in closings:  # Q6 does not define the order of equal times
                expires += 1
            closings.add((seller, expires))
            more = {
                "auction": auctions,
                "seller": seller,
                "category": chance.choice(CATEGORIES),
                "reserve": chance.randrange(300),
                "currency": chance.choice(CURRENCIES),
                "expires": expires,
            }
        elif kind == "bid":
            more = {
                "auction": chance.randrange(max(1, auctions - 8), auctions + 2),
                "bidder": chance.randrange(max(1, persons - 20), persons + 2),
                "price": 10 * chance.randrange(1, 100),
            }
        else:
            more = {"currency": chance.choice(CURRENCIES), "rate": chance.randrange(70, 99) / 100}
        yield {"id": number, "kind": kind, "time": time, **more}
