"""Times of labels, said to people.

>>> time_in_words(726)
'record 726'
"""

from __future__ import annotations

from datetime import datetime

_CLOCK_FROM, _CLOCK_UNTIL = 10**14, 253_000_000_000_000_000
"""Times of a clock, from 1973 to 9987: no file has so many records."""


def time_in_words(time: int) -> str:
    """The record, or the moment of this machine's clock, that a time stands for."""
    if time <= 0:
        return "the beginning"
    if time < _CLOCK_FROM:
        return f"record {time}"
    if time < _CLOCK_UNTIL:
        seconds, microseconds = divmod(time, 1_000_000)
        moment = datetime.fromtimestamp(seconds).replace(microsecond=microseconds)
        return moment.isoformat(" ", "microseconds")
    return "the end"


def label_in_words(label: tuple[int, ...]) -> str:
    """A label; of a record of a producer, with the moment at which it was taken.

    >>> label_in_words((50, 0, 2))
    'label [50, 0, 2]'
    """
    taken = f" ({time_in_words(label[0])})" if _CLOCK_FROM <= label[0] < _CLOCK_UNTIL else ""
    return f"label {list(label)}{taken}"
