"""What is wrong with a query, and where.

>>> print(QueryError("there is no field 'titel'", "cat titel:dog", Place(4, 10)))
there is no field 'titel', at character 5
  cat titel:dog
      ^^^^^^
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

from driftline.engine.errors import DriftlineError

_BEFORE, _SHOWN = 40, 76
"""Characters of a picture: before the place, and in all."""


class Place(NamedTuple):
    """A part of the text of a query: text[start:end]."""

    start: int
    end: int


_BEGINNING = Place(0, 0)


class QueryError(DriftlineError):
    """A query cannot be understood, or does not fit the collection.

    Args:
        problem: What is wrong, and what to do.
        query: The text of the query.
        place: Where it is wrong.
    """

    def __init__(self, problem: str, query: str = "", place: Place = _BEGINNING) -> None:
        self.problem = problem
        self.position = place.start
        self.picture = _picture(query, place)
        text = f"{problem}, at character {place.start + 1}\n{self.picture}" if query else problem
        super().__init__(text)


def _picture(query: str, place: Place) -> str:
    """Two lines: the query, and marks below the place. Of a long one what is near."""
    first = max(0, place.start - _BEFORE)
    shown = query[first : first + _SHOWN]
    shown = "".join(each if each.isprintable() else " " for each in shown)
    before, at = shown[: place.start - first], shown[place.start - first : place.end - first]
    return f"  {shown}\n  {' ' * _width(before)}{'^' * max(1, _width(at))}"


def _width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.category(each) == "Mn" for each in text)
