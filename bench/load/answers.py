"""The answers that users got, as JSON lines, for a checker that compares them with a model.

All labels and T are tokens. There is a line for each answer, in no particular order:

    {"q": "tea", "at": T, "limit": 10, "begin": 0, "hits": [[id, score, label], ...], "total": 3}
    {"q": "tea", "at": T, "total": 3}                               of /count
    {"get": "7", "at": T, "label": L, "document": {...}}
    {"put": "7", "label": L, "document": {...}}
    {"delete": "7", "label": L}
    {"change": {...}, "label": L}                                   of /changes, with its data

`begin`: how many hits were on the pages before. A put or delete without an answer has no line: it
may have been done, and then is among the changes.

    >>> hits_of([{"id": "7", "score": 0.5, "label": "001k0zhac9qsmc", "snippet": ""}])
    [['7', 0.5, '001k0zhac9qsmc']]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path


class Answers:
    """The file; without a path nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("w")

    def note(self, **line: object) -> None:
        """Write a line."""
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Write what is left."""
        if self._file is not None:
            self._file.close()
            self._file = None


def hits_of(hits: Sequence[Mapping[str, object]]) -> list[list[object]]:
    """The hits of an answer, as they are noted."""
    return [[hit["id"], hit["score"], hit["label"]] for hit in hits]
