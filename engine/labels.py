"""Labels t(x): one total order over all elements of a run.

A label is a flat tuple of integers ``(time, front, *path)``. `time` and `front` name the input
element (the *root*) from which an element was made. If the source has event times, `path` begins
with a number for the event time (`engine.event_time`). Then come the child numbers between the
root and the element: an operator that may emit several outputs appends the output's number, and a
vertex with several downstream edges appends the edge's number. Timers and iterations append numbers
of their own. Tuples compare lexicographically, so plain ``<`` on labels is the total order of the
drifting state model (paper "Delivery, consistency, and determinism", section V: "order is
maintained by t(x)").

    >>> root = (7, 0)
    >>> child(root, 2) < child(root, 3) < (8, 0)
    True

Two different elements on the same edge have different labels. Times lie in [0, INFINITY).

A time is the number of a record in its file, or, for records that arrive while a flow runs, a clock
time in microseconds; `engine.texts` formats it for messages.
"""

Label = tuple[int, ...]

INFINITY = 2**62
"""Larger than every time: the promise of a front that has ended, and the frontier of a complete
run. Fits a signed 64-bit integer."""


def child(label: Label, number: int) -> Label:
    """Return the label of child `number` (from 0) of the element with this label."""
    return (*label, number)


ROUNDS_MAX = 1 << 20
"""Largest number of rounds of an iteration (`engine.operators.iterate`)."""

ROUND_MARK_BASE = (1 << 42) + (1 << 20)
"""The label of a message of an iteration ends in two numbers: a mark, which is
`(ROUND_MARK_BASE + operator) * ROUNDS_MAX + round`, and a number for the path of messages. Marks
lie between 2^62 and 2^63: above the numbers of children, and above those of timers
(`engine.event_time`)."""
