"""The tree of a query as the index evaluates it: fields are numbers, words are analysed.

A tree is canonical: the parts of an `AllOf` or `AnyOf` are at least two, all different, none of its
own class, in the order in which they were written. Fields with words and fields with values are
numbered apart, see `driftline.index.documents.schema`. `str` gives the form for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

from driftline.index.documents.values import DATE_MAX, DATE_MIN, date_in_words
from driftline.index.query.syntax import bare, quoted


@dataclass(frozen=True, slots=True)
class Every:
    """All documents."""

    def __str__(self) -> str:
        return "*"


@dataclass(frozen=True, slots=True)
class _OfField:
    """`field`: its number; `name`: for people."""

    field: int
    name: str


@dataclass(frozen=True, slots=True)
class Word(_OfField):
    """Documents that have this word in a text field."""

    word: str

    def __str__(self) -> str:
        return f"{self.name}:{bare(self.word)}"


@dataclass(frozen=True, slots=True)
class BoundPhrase(_OfField):
    """These words, two or more, one after the other in a text field; no word is further than `slop`
    from its place among the others (`index.search.phrases`).
    """

    words: tuple[str, ...]
    slop: int

    def __str__(self) -> str:
        return f"{self.name}:{quoted(' '.join(self.words))}" + f"~{self.slop}" * bool(self.slop)


@dataclass(frozen=True, slots=True)
class WordsFrom(_OfField):
    """Any word of a text field that begins so."""

    prefix: str

    def __str__(self) -> str:
        return f"{self.name}:{bare(self.prefix)}*"


@dataclass(frozen=True, slots=True)
class Near(_OfField):
    """Any word of a text field with a Levenshtein distance of at most 1, in characters."""

    word: str

    def __str__(self) -> str:
        return f"{self.name}:{bare(self.word)}~"


@dataclass(frozen=True, slots=True)
class AnyWord(_OfField):
    """Documents that have a word in a text field, whichever."""

    def __str__(self) -> str:
        return f"{self.name}:*"


@dataclass(frozen=True, slots=True)
class Equals(_OfField):
    """This keyword, in a field of keywords."""

    keyword: str

    def __str__(self) -> str:
        return f"{self.name}:{quoted(self.keyword)}"


@dataclass(frozen=True, slots=True)
class KeywordsFrom(_OfField):
    """Any keyword that begins so."""

    prefix: str

    def __str__(self) -> str:
        return f"{self.name}:{bare(self.prefix)}*"


@dataclass(frozen=True, slots=True)
class Between(_OfField):
    """A number (floats) or a date (integers: microseconds) with low <= value <= high."""

    low: float | int
    high: float | int

    def __str__(self) -> str:
        return f"{self.name}:[{_end(self.low)} TO {_end(self.high)}]"


@dataclass(frozen=True, slots=True)
class Without:
    """What does not match the part."""

    part: Part

    def __str__(self) -> str:
        return f"-({self.part})" if isinstance(self.part, Joined) else f"-{self.part}"


@dataclass(frozen=True, slots=True)
class AllOf:
    """What matches all parts."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return " ".join(
            f"({part})" if isinstance(part, AnyOf) else str(part) for part in self.parts
        )


@dataclass(frozen=True, slots=True)
class AnyOf:
    """What matches any part."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return " OR ".join(map(str, self.parts))


Scoring = Word | BoundPhrase | WordsFrom | Near
"""What can add to a score: leaves of text fields."""

Leaf = Every | Scoring | AnyWord | Equals | KeywordsFrom | Between
Joined = AllOf | AnyOf
Part = Leaf | Without | Joined


@dataclass(frozen=True, slots=True)
class Bound:
    """A query for one collection.

    `scoring`: the leaves that add to the score of a document, if they match it; each once, in the
    order in which they were written. Leaves below a `Without` are none of them.
    """

    root: Part
    scoring: tuple[Scoring, ...]

    def __str__(self) -> str:
        return str(self.root)


def _end(value: float | int) -> str:
    if isinstance(value, int):
        return "*" if value in (DATE_MIN, DATE_MAX) else quoted(date_in_words(value))
    return "*" if isinf(value) else repr(value)
