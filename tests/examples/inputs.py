"""Random records for the examples, with few keys, so that many elements meet."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Record = dict[str, object]

COUNT = 40
"""Records of a source."""


def records(name: str, chance: Random) -> list[list[Record]]:
    """Draw the records of each source of an example."""
    count = 12 if name == "topk" else COUNT
    return [[make(chance, number) for number in range(count)] for make in _MAKERS[name]]


def _visit(chance: Random, number: int) -> Record:
    at = 600 * number + chance.randrange(-900, 900)  # not in the order of time
    return {"user": chance.choice("abc"), "at": at, "page": "/"}


def _view(chance: Random, number: int) -> Record:
    seconds = 5 * number + chance.randrange(60)  # some are too late
    at = f"2026-03-01T12:{seconds // 60:02}:{seconds % 60:02}Z"
    return {"user": chance.choice("abc"), "at": at, "page": chance.choice(["/", "/a"])}


def _reading(chance: Random, number: int) -> Record:
    at = 60 * number + chance.randrange(-60, 60)  # not in the order of time
    return {"sensor": chance.choice("abcde"), "at": at, "celsius": 21.5}


def _iso(seconds: int) -> str:
    return f"2026-03-01T{12 + seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def _order(chance: Random, number: int) -> Record:
    at = _iso(60 * number + chance.randrange(60))
    return {"order": f"o-{number}", "at": at, "customer": chance.choice("abc"), "price": 100}


def _payment(chance: Random, number: int) -> Record:
    order = f"o-{max(0, number + chance.randrange(-20, 8))}"
    at = _iso(60 * number + chance.randrange(60))
    return {"order": order, "at": at, "amount": chance.randrange(1, 100)}


def _sale(chance: Random, number: int) -> Record:
    at = _iso(20 * number + chance.randrange(30))
    return {"product": chance.choice("abcdefg"), "at": at, "pieces": chance.randrange(1, 9)}


def _event(chance: Random, number: int) -> Record:
    at = f"2026-03-{1 + number // 10:02}T{chance.randrange(24):02}:00:00Z"
    return {"id": f"e-{chance.randrange(9)}", "at": at, "kind": "signup", "user": f"u-{number}"}


def _product(chance: Random, number: int) -> Record:
    product = chance.choice("abc")
    price = chance.randrange(1, 100)
    return {
        "product": product,
        "at": _iso(60 * number),
        "name": f"{product} {number}",
        "price": price,
    }


def _order_of_product(chance: Random, number: int) -> Record:
    at = _iso(60 * number + chance.randrange(60))
    return {"product": chance.choice("abcx"), "at": at, "pieces": chance.randrange(1, 9)}


def _card_payment(chance: Random, number: int) -> Record:
    amount = chance.choice((1, 200, 700, 50_000, 90_000))
    return {"card": chance.choice("abc"), "at": 10 * number, "amount": amount}


def _auction(chance: Random, number: int) -> Record:
    at, reserve = 60 * number, chance.randrange(200)
    closes = at + chance.randrange(60, 600)
    return {"auction": f"a-{number}", "at": at, "closes": closes, "reserve": reserve}


def _bid(chance: Random, number: int) -> Record:
    auction = f"a-{max(0, number - chance.randrange(8))}"
    at, price = 60 * number + chance.randrange(60), chance.randrange(1, 500)
    return {"auction": auction, "at": at, "bidder": chance.choice("abc"), "price": price}


def _link(chance: Random, number: int) -> Record:
    return {"from": f"n-{chance.randrange(50)}", "to": f"n-{chance.randrange(50)}"}


_MAKERS: dict[str, tuple[Callable[[Random, int], Record], ...]] = {
    "sessions": (_visit,),
    "page_views": (_view,),
    "silence": (_reading,),
    "join": (_order, _payment),
    "topk": (_sale,),
    "dedupe": (_event,),
    "enrichment": (_product, _order_of_product),
    "fraud": (_card_payment,),
    "auction": (_auction, _bid),
    "connected_components": (_link,),
}

NAMES = list(_MAKERS)
"""The examples with random records."""
