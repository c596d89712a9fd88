"""Windows contain the panes that the trigger tests of Apache Beam expect of them.

The cases are facts of `trigger_transcripts.yaml` and `trigger_test.py` of Apache Beam: event times,
watermarks, and the elements of each window. A watermark of 900 stands for the end of the input.

Beam fires a window several times, Driftline once: the panes of a window are compared as one, and an
element that Beam adds in a late pane is in `late` here. Without equivalent are: the number and the
order of early and late panes (there are no triggers), triggers that finish before the window ends,
output times other than the end of the window, and transcripts that Beam's checker has to reject.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from driftline import Collect, Flow, FlowTest, Session, Tumbling, Windows
from driftline.engine.event_time import event_time_of, iso_text

S = 1_000_000

MAX_DELAY = 1000
"""In seconds; larger than all event times, so that only `advance_to` moves the watermark."""

Pane = tuple[int, int, list[int]]
"""Start and end of a window in seconds, and its elements, sorted."""


@dataclass(frozen=True)
class Step:
    """Elements that arrive, the watermark after them, and the outputs."""

    arrive: tuple[int, ...] = ()
    """Elements. Each is its own event time, in seconds."""
    watermark: int | None = None
    """Where the watermark moves after the elements, in seconds."""
    panes: tuple[Pane, ...] = ()
    late: tuple[int, ...] = ()


FIXED, SESSIONS = Tumbling(10), Session(10)

CASES: dict[str, tuple[Windows, list[Step]]] = {
    "fixed": (
        FIXED,
        [Step((1, 2, 3, 10, 11), 25, ((0, 10, [1, 2, 3]), (10, 20, [10, 11])))],
    ),
    "fixed, one late": (
        FIXED,
        [
            Step(
                (1, 2, 3, 10, 11, 25),
                100,
                ((0, 10, [1, 2, 3]), (10, 20, [10, 11]), (20, 30, [25])),
            ),
            Step((7,), late=(7,)),
        ],
    ),
    "fixed, several steps": (
        FIXED,
        [
            Step((1, 2, 3)),
            Step((4,)),
            Step((14,)),
            Step((5,)),
            Step((18,)),
            Step((6,), 100, ((0, 10, [1, 2, 3, 4, 5, 6]), (10, 20, [14, 18]))),
        ],
    ),
    "fixed, behind the watermark, some before it": (
        FIXED,
        [Step((), 5), Step((2, 3, 7, 8), 11, ((0, 10, [2, 3, 7, 8]),))],
    ),
    "fixed, behind the watermark": (
        FIXED,
        [Step((), 8), Step((2, 3, 7), 11, ((0, 10, [2, 3, 7]),))],
    ),
    "fixed, to the end": (
        FIXED,
        [Step((1, 2, 13), 900, ((0, 10, [1, 2]), (10, 20, [13])))],
    ),
    "fixed, large, some late": (
        Tumbling(100),
        [
            Step(tuple(range(9)), 900, ((0, 100, [*range(9)]),)),
            Step((0, 1, 2, 3, 4), late=(0, 1, 2, 3, 4)),
        ],
    ),
    "sessions, several steps, some late": (
        SESSIONS,
        [
            Step((1, 2, 3)),
            Step((4,)),
            Step((5,)),
            Step((6,), 100, ((1, 16, [1, 2, 3, 4, 5, 6]),)),
            Step((1,), late=(1,)),
            Step((3, 4), late=(3, 4)),
        ],
    ),
    "sessions": (SESSIONS, [Step((1, 2), 900, ((1, 12, [1, 2]),))]),
    "sessions, joined later": (
        SESSIONS,
        [
            Step(
                (1, 2, 15, 16, 30, 9, 10, 30),
                900,
                ((1, 26, [1, 2, 9, 10, 15, 16]), (30, 40, [30, 30])),
            )
        ],
    ),
    "sessions, joined by one, some late": (
        SESSIONS,
        [
            Step((1, 15, 7, 30), 900, ((1, 25, [1, 7, 15]), (30, 40, [30]))),
            Step((1, 2, 21), late=(1, 2, 21)),
        ],
    ),
    "sessions, three": (
        SESSIONS,
        [
            Step(
                (1, 15, 6, 30, 31, 50, 50),
                900,
                ((1, 25, [1, 6, 15]), (30, 41, [30, 31]), (50, 60, [50, 50])),
            )
        ],
    ),
    "sessions, joined, then more": (
        SESSIONS,
        [Step((1, 15, 6, 2, 7), 900, ((1, 25, [1, 2, 6, 7, 15]),))],
    ),
}


@pytest.mark.parametrize("reverse", [False, True], ids=["in order", "reversed"])
@pytest.mark.parametrize("name", CASES)
def test_windows_have_the_elements_of_the_panes_in_beam(name: str, reverse: bool) -> None:
    windows, steps = CASES[name]
    flow = Flow("transcript")
    source = flow.source("elements", event_time=lambda at: at, max_delay=MAX_DELAY)
    windowed = source.key_by(lambda at: "all").window(windows)
    windowed.aggregate(elements=Collect()).sink("panes")
    windowed.late.sink("late")
    with FlowTest(flow) as test:
        for step in steps:
            seen = len(test.items("panes"))
            for at in sorted(step.arrive, reverse=True) if reverse else step.arrive:
                test.send(at)
            assert len(test.items("panes")) == seen, "only the watermark completes a window"
            if step.watermark is not None:
                test.advance_to((step.watermark + MAX_DELAY) * S)
            items = test.items("panes")[seen:]
            rows: list[Any] = [item.value for item in items]
            found = [(row["start"], row["end"], sorted(row["elements"])) for row in rows]
            assert found == [
                (iso_text(start * S), iso_text(end * S), elements)
                for start, end, elements in step.panes
            ]
            last_moments = [end * S - 1 for _, end, _ in step.panes]
            assert [event_time_of(item.label) for item in items] == last_moments
            late: list[Any] = test.take("late")
            assert sorted(each["record"] for each in late) == sorted(step.late)
        test.end()
        assert len(test.items("panes")) == sum(len(step.panes) for step in steps)
