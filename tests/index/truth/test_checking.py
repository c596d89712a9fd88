"""The checks of what clients were told find each thing that must not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log1p, nextafter

import pytest

from driftline.index.documents.schema import DEFAULT
from tests.index.truth.checking import check
from tests.index.truth.notes import Answered, Notes, Sent, Watched
from tests.index.truth.watching import Event

COLLECTION = DEFAULT.collections["documents"]
TITLE = next(field for field in COLLECTION.text_fields if field.name == "title")

SCORE = TITLE.weight * log1p(0.5 / 1.5) * 2.2 / (1 + 1.2 * (1 - 0.75 + 0.75))
"""Of the only document, which has the word once."""

FOUND = Answered("search", 40, "black", limit=9, total=1, hits=(("x", SCORE, 30),))


def story() -> tuple[Notes, list[Event]]:
    """Of two documents one is replaced, by who was not told so, and the other one is deleted."""
    a, b = {"title": "green tea", "mark": "1"}, {"title": "tea", "mark": "2"}
    c = {"title": "black", "mark": "3"}
    sent = [
        Sent("put", "x", "1", a, label=10),
        Sent("put", "y", "2", b, expected=0, label=20),
        Sent("put", "x", "3", c, expected=10),
        Sent("delete", "y", "4", None, label=40),
        Sent("delete", "z", "5", None, label=50, absent=True),
    ]
    events: list[Event] = [
        (10, {"id": "x", "document": a, "label": "10"}),
        (20, {"id": "y", "document": b, "label": "20"}),
        (30, {"id": "x", "document": c, "label": "30"}),
        (40, {"id": "y", "deleted": True, "label": "40"}),
    ]
    answered = [
        Answered("count", 20, "tea", total=2),
        Answered("count", 39, "tea", total=1),
        Answered("get", 29, "x", hits=(("x", 0.0, 10),), document=a),
        Answered("get", 50, "y"),
        FOUND,
    ]
    watched = [
        Watched("w", "tea", 5, 5),
        Watched("w", "black", 22, 35),  # done before 30, or behind it
        Watched("v", "-tea", 25, 25),
        Watched("v", None, 35, 35),
    ]
    return Notes(sent, answered, watched), events


def event(watch: str, id: str, change: str, label: int) -> Event:
    """What a stream tells."""
    return label, {"watch": watch, "id": id, "event": change, "label": str(label)}


SURE = [event("w", "x", "entered", 10), event("w", "y", "entered", 20)]

V = [event("v", "x", "entered", 30)]

TOLD: list[dict[str, list[Event]]] = [
    {"w": [*SURE, event("w", "x", "left", 30)], "v": V},
    {"w": [*SURE, event("w", "x", "entered", 30)], "v": V},
]
"""Both are right: nobody knows which of two queries the watch had when `x` was written again."""


@pytest.mark.parametrize("streams", TOLD)
def test_checker_accepts_correct_answers(streams: dict[str, list[Event]]) -> None:
    check(*story(), COLLECTION, streams)


DELETED = {"id": "x", "deleted": True}

WRONG: dict[str, Callable[[Notes, list[Event]], object]] = {
    "an acknowledged write is lost": lambda notes, events: events.pop(0),
    "a deletion is lost": lambda notes, events: events.pop(),
    "an event comes twice": lambda notes, events: events.insert(1, events[0]),
    "a write is done twice": lambda notes, events: events.append((60, events[0][1])),
    "labels do not ascend": lambda notes, events: events.reverse(),
    "nobody sent it": lambda notes, events: notes.sent.pop(2),
    "nobody deleted it": lambda notes, events: events.append(
        (60, {"id": "x", "deleted": True, "label": "60"})
    ),
    "another label": lambda notes, events: setattr(notes.sent[0], "label", 11),
    "a condition did not hold": lambda notes, events: setattr(notes.sent[1], "expected", 10),
    "it was there": lambda notes, events: setattr(notes.sent[3], "absent", True),
    "a client complains": lambda notes, events: notes.wrong.append("complaint"),
    "a count": lambda notes, events: notes.answered.append(Answered("count", 9, "*", total=1)),
    "absent": lambda notes, events: notes.answered.append(Answered("get", 20, "y")),
    "the last bit of a score": lambda notes, events: notes.answered.append(
        replace(FOUND, hits=(("x", nextafter(SCORE, 1), 30),))
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_checker_rejects_wrong_answers(wrong: str) -> None:
    notes, events = story()
    WRONG[wrong](notes, events)
    with pytest.raises(AssertionError):
        check(notes, events, COLLECTION, {})


@pytest.mark.parametrize(
    "streams",
    [
        {"w": SURE, "v": V},
        {"w": SURE[1:], "v": V},
        {"w": [SURE[1], SURE[0], TOLD[0]["w"][-1]], "v": V},
        {"w": [*SURE, *TOLD[0]["w"]], "v": V},
        {"w": [*TOLD[0]["w"], event("w", "y", "left", 41)], "v": V},
        {"w": [SURE[0], event("w", "y", "left", 20), TOLD[0]["w"][-1]], "v": V},
        {"w": TOLD[0]["w"], "v": [event("v", "x", "entered", 20), *V]},
        {"w": TOLD[0]["w"], "v": [*V, event("v", "y", "entered", 40)]},
    ],
    ids=[
        *("unsure, but none", "lost", "out of order", "twice", "from nothing", "another"),
        *("before the watch", "after it was removed"),
    ],
)
def test_wrong_events_are_found(streams: dict[str, list[Event]]) -> None:
    with pytest.raises(AssertionError):
        check(*story(), COLLECTION, streams)
