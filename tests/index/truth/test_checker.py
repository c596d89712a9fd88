"""The checker of client histories detects each kind of error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log1p, nextafter

import pytest

from driftline.index.documents.schema import DEFAULT
from tests.index.truth.checker import check
from tests.index.truth.client_history import ClientHistory, ReadResult, WatchChange, WriteAttempt
from tests.index.truth.watch_events import Event

COLLECTION = DEFAULT.collections["documents"]
TITLE = next(field for field in COLLECTION.text_fields if field.name == "title")

SCORE = TITLE.weight * log1p(0.5 / 1.5) * 2.2 / (1 + 1.2 * (1 - 0.75 + 0.75))
"""Score of the only document, which contains the word once."""

FOUND = ReadResult("search", 40, "black", limit=9, total=1, hits=(("x", SCORE, 30),))


def sample_history() -> tuple[ClientHistory, list[Event]]:
    """Return a correct history: an unacknowledged write replaces `x`; `y` is deleted."""
    a, b = {"title": "green tea", "mark": "1"}, {"title": "tea", "mark": "2"}
    c = {"title": "black", "mark": "3"}
    writes = [
        WriteAttempt("put", "x", "1", a, label=10),
        WriteAttempt("put", "y", "2", b, expected=0, label=20),
        WriteAttempt("put", "x", "3", c, expected=10),
        WriteAttempt("delete", "y", "4", None, label=40),
        WriteAttempt("delete", "z", "5", None, label=50, absent=True),
    ]
    events: list[Event] = [
        (10, {"id": "x", "document": a, "label": "10"}),
        (20, {"id": "y", "document": b, "label": "20"}),
        (30, {"id": "x", "document": c, "label": "30"}),
        (40, {"id": "y", "deleted": True, "label": "40"}),
    ]
    reads = [
        ReadResult("count", 20, "tea", total=2),
        ReadResult("count", 39, "tea", total=1),
        ReadResult("get", 29, "x", hits=(("x", 0.0, 10),), document=a),
        ReadResult("get", 50, "y"),
        FOUND,
    ]
    watch_changes = [
        WatchChange("w", "tea", 5, 5),
        WatchChange("w", "black", 22, 35),  # applied before or after the write at 30
        WatchChange("v", "-tea", 25, 25),
        WatchChange("v", None, 35, 35),
    ]
    return ClientHistory(writes, reads, watch_changes), events


def event(watch: str, id: str, change: str, label: int) -> Event:
    """Return an event of a watch."""
    return label, {"watch": watch, "id": id, "event": change, "label": str(label)}


CERTAIN_EVENTS = [event("w", "x", "entered", 10), event("w", "y", "entered", 20)]

V_EVENTS = [event("v", "x", "entered", 30)]

CORRECT_STREAMS: list[dict[str, list[Event]]] = [
    {"w": [*CERTAIN_EVENTS, event("w", "x", "left", 30)], "v": V_EVENTS},
    {"w": [*CERTAIN_EVENTS, event("w", "x", "entered", 30)], "v": V_EVENTS},
]
"""Both are correct: the query of `w` at 30 is unknown, as its change was retried."""


@pytest.mark.parametrize("streams", CORRECT_STREAMS)
def test_checker_accepts_correct_answers(streams: dict[str, list[Event]]) -> None:
    check(*sample_history(), COLLECTION, streams)


WRONG: dict[str, Callable[[ClientHistory, list[Event]], object]] = {
    "an acknowledged write is lost": lambda history, events: events.pop(0),
    "a deletion is lost": lambda history, events: events.pop(),
    "an event is duplicated": lambda history, events: events.insert(1, events[0]),
    "a write is applied twice": lambda history, events: events.append((60, events[0][1])),
    "labels do not ascend": lambda history, events: events.reverse(),
    "no client sent the write": lambda history, events: history.writes.pop(2),
    "no client sent the deletion": lambda history, events: events.append(
        (60, {"id": "x", "deleted": True, "label": "60"})
    ),
    "the acknowledged label differs": lambda history, events: setattr(
        history.writes[0], "label", 11
    ),
    "a condition did not hold": lambda history, events: setattr(history.writes[1], "expected", 10),
    "`absent` for an existing document": lambda history, events: setattr(
        history.writes[3], "absent", True
    ),
    "a client recorded an error": lambda history, events: history.errors.append("complaint"),
    "a wrong count": lambda history, events: history.reads.append(
        ReadResult("count", 9, "*", total=1)
    ),
    "a missing document": lambda history, events: history.reads.append(ReadResult("get", 20, "y")),
    "a score differs in the last bit": lambda history, events: history.reads.append(
        replace(FOUND, hits=(("x", nextafter(SCORE, 1), 30),))
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_checker_rejects_wrong_answers(wrong: str) -> None:
    history, events = sample_history()
    WRONG[wrong](history, events)
    with pytest.raises(AssertionError):
        check(history, events, COLLECTION, {})


@pytest.mark.parametrize(
    "streams",
    [
        {"w": CERTAIN_EVENTS, "v": V_EVENTS},
        {"w": CERTAIN_EVENTS[1:], "v": V_EVENTS},
        {"w": [CERTAIN_EVENTS[1], CERTAIN_EVENTS[0], CORRECT_STREAMS[0]["w"][-1]], "v": V_EVENTS},
        {"w": [*CERTAIN_EVENTS, *CORRECT_STREAMS[0]["w"]], "v": V_EVENTS},
        {"w": [*CORRECT_STREAMS[0]["w"], event("w", "y", "left", 41)], "v": V_EVENTS},
        {
            "w": [CERTAIN_EVENTS[0], event("w", "y", "left", 20), CORRECT_STREAMS[0]["w"][-1]],
            "v": V_EVENTS,
        },
        {"w": CORRECT_STREAMS[0]["w"], "v": [event("v", "x", "entered", 20), *V_EVENTS]},
        {"w": CORRECT_STREAMS[0]["w"], "v": [*V_EVENTS, event("v", "y", "entered", 40)]},
    ],
    ids=[
        *(
            "no event for either query",
            "lost event",
            "out of order",
            "duplicated event",
            "event without a write",
            "wrong event",
        ),
        *("before the watch was stored", "after the watch was removed"),
    ],
)
def test_checker_rejects_wrong_events(streams: dict[str, list[Event]]) -> None:
    with pytest.raises(AssertionError):
        check(*sample_history(), COLLECTION, streams)
