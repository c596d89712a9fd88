"""Whether a query finds one version: the same answer as that of a shard which has this one only.

Here a version is what the flow puts out: no posting lists are made of it (`index.search.matching`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from driftline.index.documents.values import Value
from driftline.index.documents.versions import Version
from driftline.index.query.bound import (
    AllOf,
    AnyOf,
    Between,
    BoundPhrase,
    Equals,
    Every,
    KeywordsFrom,
    Near,
    Part,
    Without,
    Word,
    WordsFrom,
)
from driftline.index.search.edits import is_near
from driftline.index.search.phrases import in_text


class Contents:
    """What queries look at of a version that is no deletion."""

    __slots__ = ("values", "words")

    def __init__(self, version: Version) -> None:
        self.words = tuple({} if field is None else dict(field.words) for field in version.fields)
        """Per text field: each word with its positions."""
        self.values = version.values


def matches(part: Part, contents: Contents) -> bool:
    """Whether a query, or a part of one, finds a version."""
    match part:
        case Word():
            return part.word in contents.words[part.field]
        case AllOf():
            return all(matches(each, contents) for each in part.parts)
        case AnyOf():
            return any(matches(each, contents) for each in part.parts)
        case BoundPhrase():
            return bool(in_text(part.words, part.slop, contents.words[part.field]))
        case Without():
            return not matches(part.part, contents)
        case WordsFrom():
            return _begins(contents.words[part.field], part.prefix)
        case Near():
            return any(is_near(part.word, word) for word in contents.words[part.field])
        case Equals():
            return part.keyword in keywords(contents.values[part.field])
        case KeywordsFrom():
            return _begins(keywords(contents.values[part.field]), part.prefix)
        case Between():
            value = contents.values[part.field]
            return isinstance(value, float | int) and part.low <= value <= part.high
        case Every():
            return True
    assert_never(part)


def keywords(value: Value | None) -> tuple[str, ...]:
    """The keywords that a field has."""
    return value if isinstance(value, tuple) else ()


def _begins(texts: Iterable[str], prefix: str) -> bool:
    return any(text.startswith(prefix) for text in texts)
