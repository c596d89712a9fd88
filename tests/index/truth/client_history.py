"""History of the requests that clients sent and the answers that they received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from driftline.serve.views.tokens import time_of

Kind = Literal["put", "delete"]


@dataclass
class WriteAttempt:
    """Write that a client sent, acknowledged or not.

    `mark`: unique word in the document. `label`: 0 if the write was not acknowledged; the service
    may have applied it once. `expected`: the label that `if_label` required of the document, 0 for
    no document. `absent`: the answer said that there was no document to delete.
    """

    kind: Kind
    id: str
    mark: str
    document: Mapping[str, object] | None
    expected: int | None = None
    label: int = 0
    absent: bool = False


@dataclass(frozen=True)
class WatchChange:
    """Acknowledged write of a stored query; `query` is None if it was removed.

    `since` equals `label` if the request was sent once. If it was retried, `since` is smaller: the
    service first applied the change at an unknown label in (since, label].
    """

    id: str
    query: str | None
    since: int
    label: int


@dataclass(frozen=True)
class ReadResult:
    """Answer to a read as of `at`. The hits of a search start at rank `begin`."""

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
class ClientHistory:
    """Append-only history that all clients share."""

    writes: list[WriteAttempt] = field(default_factory=list)
    reads: list[ReadResult] = field(default_factory=list)
    watch_changes: list[WatchChange] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Errors that a client detects without the model."""
    retries: Counter[str] = field(default_factory=Counter)
    """Counts of retryable error answers, by kind, and of lost connections."""


def label_of(token: object) -> int:
    """Return the label that a token of an answer encodes."""
    assert isinstance(token, str)
    return time_of(token)
