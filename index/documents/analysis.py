"""Analysers: from a text to the words by which it is found.

>>> analyser("plain").words("Über Cafés, 東京都")
['über', 'cafés', '東京都']
>>> analyser("folded").words("Über Cafés, Straße")
['uber', 'cafes', 'strasse']
>>> analyser("cjk").words("Tokyo: 東京都 ス")
['tokyo', '東京', '京都', 'ス']
>>> analyser("english").words("Cats eat"), analyser("english").places("Cats eat")
(['cat', 'eat'], [(0, 4), (5, 8)])

A word is at most 255 characters long; what is longer is cut. All replicas have to find the same
words, so stemmers are those of `snowballstemmer` itself, also where PyStemmer is installed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol

import snowballstemmer

from driftline.connectors.files.generated import words_of_text
from driftline.engine.errors import DriftlineError
from driftline.engine.texts import did_you_mean

WORD_MAX = 255
"""Characters of a word."""

Place = tuple[int, int]
"""Where a word is, or what it stands for: text[start:end]."""

_STEMS_KEPT = 1 << 16
"""Words of a language whose stems are kept: finding one takes 10 to 50 microseconds."""


class UnknownAnalyser(DriftlineError):
    """There is no analyser of this name."""


class Analyser(Protocol):
    """What finds the words of a text.

    Invariant: `words` and `places` are of the same words, in the same order.
    """

    @property
    def name(self) -> str:
        """The name by which `analyser` gives it."""

    def words(self, text: str) -> list[str]:
        """The words of a text; the position of a word is its index."""

    def places(self, text: str) -> list[Place]:
        """The place of each word in the text."""

    def unstemmed(self, text: str) -> list[str]:
        """The words before they are stemmed: what the user wrote the beginning of."""


def analyser(name: str) -> Analyser:
    """The analyser of this name. Raises UnknownAnalyser."""
    found = _analysers().get(name)
    if found is None:
        raise UnknownAnalyser(
            f"there is no analyser {name!r}{did_you_mean(name, _analysers())}; "
            f"there are {', '.join(_analysers())}"
        )
    return found


@cache
def _analysers() -> dict[str, Analyser]:
    modules = (module.name for module in iter_modules(snowballstemmer.__path__))
    languages = (name.removesuffix("_stemmer") for name in modules if name.endswith("_stemmer"))
    found: list[Analyser] = [Plain(), Folded(), Bigrams(), *map(Stemmed, sorted(languages))]
    return {each.name: each for each in found}


class Plain:
    """Letters, digits and underscores in lower case, as `connectors.files.generated` does."""

    name = "plain"

    def words(self, text: str) -> list[str]:
        return _cut(words_of_text(text))

    def places(self, text: str) -> list[Place]:
        low = text.lower()
        return _in_text(text, low, str.lower, [found.span() for found in _PLAIN.finditer(low)])

    def unstemmed(self, text: str) -> list[str]:
        return self.words(text)


class Stemmed(Plain):
    """Plain words, each as the Snowball stemmer of a language says."""

    def __init__(self, name: str) -> None:
        self.name = name
        title = "".join(part.title() for part in name.split("_"))
        stemmer: Callable[[], _Stemmer]
        stemmer = getattr(import_module(f"snowballstemmer.{name}_stemmer"), f"{title}Stemmer")

        def stem(word: str) -> str:
            # A stemmer is not for several threads, and costs nothing to make.
            return stemmer().stemWord(word)[:WORD_MAX] or word

        self._stem = lru_cache(_STEMS_KEPT)(stem)

    def words(self, text: str) -> list[str]:
        return list(map(self._stem, super().words(text)))

    def unstemmed(self, text: str) -> list[str]:
        return super().words(text)


class Folded(Plain):
    """Words without case, accents, and differences of width or form: Unicode's folding.

    Texts that are canonically equal have the same words. The marks that voice a Japanese syllable
    are no accents, and stay. Syllables of Hangul become their letters.
    """

    name = "folded"

    def words(self, text: str) -> list[str]:
        return _cut(_FOLDED.findall(folded(text)))

    def places(self, text: str) -> list[Place]:
        low = folded(text)
        return _in_text(text, low, folded, [found.span() for found in _FOLDED.finditer(low)])


class Bigrams(Folded):
    """Folded words; but in a run of Han, Kana or Hangul each two neighbours are a word.

    These are written without spaces, or with few. A single one is a word of its own.
    """

    name = "cjk"

    def words(self, text: str) -> list[str]:
        low = folded(text)
        return _cut([low[start:end] for start, end in _bigrams(low)])

    def places(self, text: str) -> list[Place]:
        low = folded(text)
        return _in_text(text, low, folded, list(_bigrams(low)))


def folded(text: str) -> str:
    """A text as its words are compared; each character by itself, whatever is beside it."""
    return text.lower() if text.isascii() else text.translate(_FOLDS)


class _Folds(dict[int, str]):
    """Number of a character -> what it becomes."""

    def __missing__(self, number: int) -> str:
        parts = unicodedata.normalize("NFKD", chr(number))
        kept = (part for part in parts if part in _VOICED or not unicodedata.combining(part))
        self[number] = "".join(kept).casefold()
        return self[number]


_FOLDS = _Folds()


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...


_PLAIN = re.compile(r"\w+")

_VOICED = "\u3099\u309a"
_FOLDED = re.compile(f"\\w[\\w{_VOICED}]*")

_HAN = "\u3005\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"
_FIRST = "\u1100-\u115f\ua960-\ua97c"
_MIDDLE = "\u1160-\u11a7\ud7b0-\ud7c6"
_LAST = "\u11a8-\u11ff\ud7cb-\ud7fb"
_CJK = f"{_HAN}{_KANA}{_FIRST}{_MIDDLE}{_LAST}"
_SYLLABLE = re.compile(
    f"[{_HAN}{_KANA}][{_VOICED}]*|[{_FIRST}][{_MIDDLE}]?[{_LAST}]?|[{_MIDDLE}][{_LAST}]?|[{_LAST}]"
)
_RUN = re.compile(f"((?:{_SYLLABLE.pattern})+)|[^\\W{_CJK}][^\\W{_CJK}{_VOICED}]*")
_ASCII_OR_NOT = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]+")


def _bigrams(low: str) -> Iterator[Place]:
    """Where the words of a folded text are."""
    for run in _RUN.finditer(low):
        if run[1] is None:
            yield run.span()
            continue
        ends = [syllable.end() for syllable in _SYLLABLE.finditer(low, *run.span())]
        yield from zip([run.start(), *ends], ends[1:] or ends, strict=False)


def _in_text(text: str, low: str, lower: Callable[[str], str], places: list[Place]) -> list[Place]:
    """The places in `text` that those in `low`, which is `lower(text)`, come from."""
    # No character in small letters is shorter: so if all together are no longer, none is.
    if text.isascii() or (lower is str.lower and len(low) == len(text)):
        return places
    origins: list[int] = []  # of each character of `low`
    for part in _ASCII_OR_NOT.finditer(text):
        if part[0].isascii():
            origins += range(*part.span())
        else:
            for at, character in enumerate(part[0], part.start()):
                origins += [at] * _length(lower, character)
    origins.append(len(text))
    # What lies behind a word and became nothing, as accents do, belongs to it.
    return [(origins[start], max(origins[end - 1] + 1, origins[end])) for start, end in places]


@lru_cache(1 << 14)
def _length(lower: Callable[[str], str], character: str) -> int:
    return len(lower(character))


def _cut(words: list[str]) -> list[str]:
    if max(map(len, words), default=0) <= WORD_MAX:
        return words
    return [word[:WORD_MAX] for word in words]
