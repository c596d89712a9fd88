"""The Nexmark queries as flows over one source, which has events of all kinds.

Nexmark does not define what late events do. Here a window ignores events that arrive after it is
complete, and an auction ignores bids that arrive after it has closed. Queries without windows
(Q0 to Q3) use all events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cached_property

from driftline import (
    Aggregate,
    Context,
    Count,
    Flow,
    Hopping,
    ListState,
    Mean,
    ReducingState,
    Session,
    Stream,
    TimedContext,
    Timer,
    Tumbling,
)
from tests.nexmark.generator import LATE, MAX_DELAY, Event

Offer = tuple[Event, Event]
"""A bid and its auction."""

SECOND = 1_000_000
"""In the unit of timers and watermarks."""


class Market:
    """The streams of a flow, one for each kind of event."""

    def __init__(self, flow: Flow) -> None:
        self.events = flow.source("events", of=Event, event_time="time", max_delay=MAX_DELAY)

    def _of_kind(self, kind: str) -> Stream[Event]:
        return self.events.filter(lambda event: event["kind"] == kind, name=kind)

    @cached_property
    def persons(self) -> Stream[Event]:
        return self._of_kind("person")

    @cached_property
    def auctions(self) -> Stream[Event]:
        return self._of_kind("auction")

    @cached_property
    def bids(self) -> Stream[Event]:
        return self._of_kind("bid")

    @cached_property
    def rates(self) -> Stream[Event]:
        return self._of_kind("rate")

    @cached_property
    def winners(self) -> Stream[Event]:
        """Each auction that is sold, with bidder and price, at the time at which it closes.

        The highest bid wins; of equal ones the earliest, then the one that arrived first.
        """
        offers = self.bids.as_of(self.auctions, on="auction").filter(is_valid, name="valid")
        best = offers.key_by(lambda pair: pair[0]["auction"]).process(
            offer, ReducingState[Offer]("best", better), on_timer=close, name="winners"
        )
        return best.map(
            lambda pair: {**pair[1], "bidder": pair[0]["bidder"], "price": pair[0]["price"]}
        )


def is_valid(pair: tuple[Event, Event | None]) -> bool:
    """Return whether the auction was open and the bid reaches the reserve."""
    bid, auction = pair
    return (
        auction is not None
        and bid["time"] < auction["expires"]
        and bid["price"] >= auction["reserve"]
    )


def better(one: Offer, other: Offer) -> Offer:
    return max(one, other, key=lambda pair: (pair[0]["price"], -pair[0]["time"], -pair[0]["id"]))


def offer(context: TimedContext, pair: Offer, best: ReducingState[Offer]) -> tuple[Offer, ...]:
    """Remember the best offer, unless the auction has closed."""
    closing = pair[1]["expires"] * SECOND
    if context.watermark < closing:
        best.add(pair)
        context.timers.set("close", closing)
    return ()


def close(context: TimedContext, timer: Timer, best: ReducingState[Offer]) -> Iterator[Offer]:
    """Yield the best offer, and forget the auction."""
    if winner := best.get():
        yield winner
    best.clear()


class Highest(Aggregate):
    """All elements with the largest value of a field."""

    def __init__(self, by: str) -> None:
        self.by = by

    def zero(self) -> tuple[Event, ...]:
        return ()

    def add(self, accumulator: tuple[Event, ...], element: Event) -> tuple[Event, ...]:
        return self.merge(accumulator, (element,))

    def merge(self, one: tuple[Event, ...], other: tuple[Event, ...]) -> tuple[Event, ...]:
        both = (*one, *other)
        largest = max(element[self.by] for element in both)
        return tuple(element for element in both if element[self.by] == largest)


def q0(market: Market) -> Stream[Event]:
    """Pass through: all bids."""
    return market.bids


def q1(market: Market) -> Stream[Event]:
    """Currency conversion: the bids in euros."""
    return market.bids.map(lambda bid: {**bid, "price": bid["price"] * 0.908})


def q2(market: Market) -> Stream[Event]:
    """Selection: the bids on every fifth auction."""
    selected = market.bids.filter(lambda bid: bid["auction"] % 5 == 0)
    return selected.map(lambda bid: {"auction": bid["auction"], "price": bid["price"]})


def q3(market: Market) -> Stream[Event]:
    """Return local items: sellers from three states, in category 10.

    Nexmark joins without a limit in time; here the limit is longer than any run.
    """
    local = market.persons.filter(lambda person: person["state"] in ("OR", "ID", "CA"))
    auctions = market.auctions.filter(lambda auction: auction["category"] == 10)
    pairs = local.join(auctions, on=("person", "seller"), within=("-1000d", "1000d"))
    return pairs.map(
        lambda pair: {
            **{name: pair[0][name] for name in ("name", "city", "state")},
            "auction": pair[1]["auction"],
        }
    )


def q4(market: Market) -> Stream[Event]:
    """Average price: of the auctions of a category that closed in a minute, every 20 seconds."""
    minutes = market.winners.key_by("category").window(Hopping("1m", every="20s"))
    return minutes.aggregate(average=Mean("price"))


def q5(market: Market) -> Stream[Event]:
    """Hot items: the auctions with the most bids in 10 seconds, every 2 seconds."""
    windows = market.bids.key_by("auction").window(Hopping("10s", every="2s"))
    counts = windows.aggregate(bids=Count())
    ends = counts.key_by("end").window(Tumbling("2s")).aggregate(best=Highest("bids"))
    return ends.flat_map(lambda row: row["best"])


def q6(market: Market) -> Stream[Event]:
    """Average price: of the last ten auctions that a seller sold, at each closing."""

    def average(auction: Event, prices: ListState[int]) -> Event:
        prices.append(auction["price"])
        del prices[:-10]
        return {"seller": auction["seller"], "average": sum(prices) / len(prices)}

    return market.winners.key_by("seller").scan(average, ListState[int]("prices"))


def q7(market: Market) -> Stream[Event]:
    """Highest bid: all bids with the highest price of 10 seconds."""
    windows = market.bids.key_by(lambda bid: "all").window(Tumbling("10s"))
    return windows.aggregate(best=Highest("price")).flat_map(lambda row: row["best"])


def q8(market: Market) -> Stream[Event]:
    """New users: persons who opened an auction in the same 10 seconds in which they registered."""

    def new_sellers(row: Event) -> Iterator[Event]:
        if {event["kind"] for event in row["values"]} == {"person", "auction"}:
            yield {"person": row["key"], "start": row["start"]}

    both = market.persons.union(market.auctions)
    users = both.key_by(lambda event: event.get("person") or event["seller"])
    return users.window(Tumbling("10s")).collect().flat_map(new_sellers)


def q9(market: Market) -> Stream[Event]:
    """Winning bids: each auction that was sold."""
    return market.winners


def q11(market: Market) -> Stream[Event]:
    """User sessions: the bids of each bidder, split at gaps of 10 seconds.

    Sessions wait for the latest bid of all, so no bid is ignored.
    """
    sessions = market.bids.key_by("bidder").window(Session("10s"), lateness=2 * LATE)
    return sessions.aggregate(bids=Count())


def proceeds(market: Market) -> Stream[Event]:
    """Not of Nexmark: what each sold auction yields in the currency of its seller.

    The rate is that at the time at which the auction closes, if one is known.
    """
    pairs = market.winners.as_of(market.rates, on="currency")
    return pairs.map(
        lambda pair: {
            "auction": pair[0]["auction"],
            "amount": pair[1] and pair[0]["price"] * pair[1]["rate"],
        }
    )


Query = Callable[[Market], Stream[Event]]

QUERIES: dict[str, Query] = {
    query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q11, proceeds)
}


def flow_of(*names: str) -> Flow:
    """Return a flow with some queries, each with a sink of its name."""
    flow = Flow("nexmark")
    market = Market(flow)
    for name in names:
        QUERIES[name](market).sink(name)
    return flow


def q12(size: str | timedelta = "10s") -> Flow:
    """Return the flow of Q12: the bids of each bidder in windows of the time of arrival.

    The sink `arrivals` has the time of arrival of each bid, in microseconds.
    """

    def arrival(context: Context, bid: Event) -> Iterator[Event]:
        yield {"id": bid["id"], "bidder": bid["bidder"], "time": context.label[0]}

    flow = Flow("nexmark q12")
    bids = flow.source("bids", of=Event, tick="1s").key_by("bidder")
    bids.window(Tumbling(size)).aggregate(bids=Count()).sink("q12")
    bids.process(arrival).sink("arrivals")
    return flow


everything = flow_of(*QUERIES)
arrivals = q12("2ms")
