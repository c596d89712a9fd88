"""Labels t(x): one total order over all elements of a run.

A label is a flat tuple of integers ``(time, front, *path)``. `time` and `front` name the input
element (the *root*) from which an element was made. `path` contains the child numbers between the
root and the element: an operator that may emit several outputs appends the output's number, and a
vertex with several downstream edges appends the edge's number. Tuples compare lexicographically,
so plain ``<`` on labels is the total order of the drifting state model (Delivery, consistency, and
determinism, section V: "order is maintained by t(x)").

    >>> root = (7, 0)
    >>> child(root, 2) < child(root, 3) < (8, 0)
    True

Two different elements never share a label on the same edge. Times lie in [0, INFINITY).

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

ROUND = (1 << 42) + (1 << 20)
"""Number in the labels of iterations, which end in `(..., ROUND, operator, round)`. It is larger
than the number of any child. Together, the three make a number between 2^62, with which the labels
of timers begin, and 2^63."""
