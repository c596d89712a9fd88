"""What clients note of all that they sent and were answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from driftline.serve.views.tokens import time_of

Kind = Literal["put", "delete"]


@dataclass
class Sent:
    """A write. `mark`: is in the document, and in no other one.

    `label`: 0: it was not acknowledged: it may have been done, once. `expected`: the label that its
    document had to have, 0: there had to be none. `absent`: that there was nothing to delete.
    """

    kind: Kind
    id: str
    mark: str
    document: Mapping[str, object] | None
    expected: int | None = None
    label: int = 0
    absent: bool = False


@dataclass(frozen=True)
class Watched:
    """A stored query was put, or removed (None), with this label.

    `since`: the same; or less, if it was sent several times: it was done first somewhere between.
    """

    id: str
    query: str | None
    since: int
    label: int


@dataclass(frozen=True)
class Answered:
    """An answer as of `at`; of a search: `hits` are those from `begin` on."""

    what: Literal["search", "count", "get"]
    at: int
    query: str
    sort: str = ""
    begin: int = 0
    limit: int = 0
    total: int = 0
    hits: tuple[tuple[str, float, int], ...] = ()
    facet: tuple[tuple[str, int], ...] | None = None
    document: object = None


@dataclass
class Notes:
    """Of all clients: they only add."""

    sent: list[Sent] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What must not be, whatever the model says."""
    refused: Counter[str] = field(default_factory=Counter)
    """Answers that told to come again, and connections that were lost."""


def label_of(token: object) -> int:
    """The number of a token of an answer."""
    assert isinstance(token, str)
    return time_of(token)
