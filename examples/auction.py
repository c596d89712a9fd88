"""Auction: the highest bid of each minute, and the winning bid of each auction.

A bid can win if the auction is open at the bid's event time, and the price reaches the reserve. Of
equal prices the earliest bid wins. A bid is ignored if the watermark has reached the end of its
auction.

    {"auction": "a-1", "at": 1700000000, "closes": 1700000600, "reserve": 100}   first file
    {"auction": "a-1", "at": 1700000005, "bidder": "ann", "price": 250}          second file

    driftline run examples/auction.py --input auctions.jsonl --input bids.jsonl --output out
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from driftline import Flow, ReducingState, TimedContext, Timer, Top, Tumbling

SECOND = 1_000_000
"""Timers and watermarks are in microseconds."""


class Auction(TypedDict):
    """An auction, open from `at` until `closes` (in seconds); `reserve`: lowest accepted price."""

    auction: str
    at: int
    closes: int
    reserve: int


class Bid(TypedDict):
    """A bid."""

    auction: str
    at: int
    bidder: str
    price: int


class Offer(Bid):
    """A valid bid, with the time at which its auction closes."""

    closes: int


def valid(pair: tuple[Bid, Auction | None]) -> Iterator[Offer]:
    """Yield an offer if the auction of a bid is open, and the price reaches the reserve."""
    bid, auction = pair
    if auction and bid["at"] < auction["closes"] and bid["price"] >= auction["reserve"]:
        yield {**bid, "closes": auction["closes"]}


def better(one: Offer, other: Offer) -> Offer:
    """Return the offer with the higher price; if prices are equal, the earlier one."""
    return max(one, other, key=lambda offer: (offer["price"], -offer["at"]))


def take(context: TimedContext, offer: Offer, best: ReducingState[Offer]) -> tuple[Offer, ...]:
    """Keep the best offer until the auction closes."""
    closes = offer["closes"] * SECOND
    if context.watermark < closes:
        best.add(offer)
        context.timers.set("close", closes)
    return ()


def close(context: TimedContext, timer: Timer, best: ReducingState[Offer]) -> Iterator[Offer]:
    """Yield the best offer, and remove the state of the auction."""
    if winner := best.get():
        yield winner
    best.clear()


flow = Flow("auction")
auctions = flow.source("auctions", of=Auction, event_time="at", max_delay="30s")
bids = flow.source("bids", of=Bid, event_time="at", max_delay="30s")
minutes = bids.key_by(lambda bid: "all").window(Tumbling("1m"))
minutes.aggregate(highest=Top(1, by="price")).sink("minutes")
offers = bids.as_of(auctions, on="auction").flat_map(valid).key_by("auction")
offers.process(take, ReducingState("best", better), on_timer=close).sink("winners")
