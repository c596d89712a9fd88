"""Analysers: split a text into the words to index.

>>> analyser("plain").words("Über Cafés, 東京都")
['über', 'cafés', '東京都']
>>> analyser("folded").words("Über Cafés, Straße, Øre")
['uber', 'cafes', 'strasse', 'ore']
>>> analyser("cjk").words("Tokyo: 東京都 ス")
['tokyo', '東京', '京都', 'ス']
>>> analyser("english").words("Cats eat"), analyser("english").word_spans("Cats eat")
(['cat', 'eat'], [(0, 4), (5, 8)])

A word is a run of letters, digits and underscores of any script. By Unicode's rule WB4 (UAX #29),
combining marks and format characters, such as soft hyphens and joiners, belong to the word that
they follow. Format characters, variation selectors and enclosing marks are removed from words, so
"co\u00adop" is found by "coop". A zero-width space separates words. Canonically equal texts have
the same words.

Words are cut to 255 characters. All replicas must produce the same words. The stemmers are
therefore the pure Python ones of `snowballstemmer`, even if PyStemmer is installed, and
`constraints.txt` pins the version of `snowballstemmer`. Python's Unicode version determines which
characters are letters, so all machines of a cluster need the same minor version of Python.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from pkgutil import iter_modules
from sys import maxunicode
from typing import NamedTuple, Protocol

import snowballstemmer

from driftline.engine.errors import DriftlineError
from driftline.engine.texts import did_you_mean

WORD_MAX = 255
"""Largest length of a word, in characters."""

WordSpan = tuple[int, int]
"""Start and end of a word in a text: text[start:end]."""

_STEM_CACHE_SIZE = 1 << 16
"""Number of cached stems per language; stemming a word takes 10 to 50 microseconds."""


class UnknownAnalyser(DriftlineError):
    """Raised if no analyser has the given name."""


class Analyser(Protocol):
    """Splitter of texts into words.

    Invariant: `words` and `word_spans` describe the same words, in the same order.
    """

    @property
    def name(self) -> str:
        """Argument of `analyser` that returns this analyser."""

    def words(self, text: str) -> list[str]:
        """Return the words of a text; the position of a word is its index."""

    def word_spans(self, text: str) -> list[WordSpan]:
        """Return the span of each word in the text."""

    def unstemmed(self, text: str) -> list[str]:
        """Return the words before stemming, for prefixes, which cannot be stemmed."""


def analyser(name: str) -> Analyser:
    """Return the analyser with a name. Raises UnknownAnalyser."""
    by_name = _analysers()
    if name not in by_name:
        raise UnknownAnalyser(
            f"there is no analyser {name!r}{did_you_mean(name, by_name)}; "
            f"the analysers are {', '.join(by_name)}"
        )
    return by_name[name]


@cache
def _analysers() -> dict[str, Analyser]:
    modules = (module.name for module in iter_modules(snowballstemmer.__path__))
    languages = (name.removesuffix("_stemmer") for name in modules if name.endswith("_stemmer"))
    stemmed = ((Turkish if name == "turkish" else Stemmed)(name) for name in sorted(languages))
    analysers: list[Analyser] = [Plain(), Folded(), Bigrams(), *stemmed]
    return {each.name: each for each in analysers}


class Plain:
    """Analyser whose words are in lower case."""

    name = "plain"

    def words(self, text: str) -> list[str]:
        if text.isascii():
            return _cut(_MARKLESS_WORD.findall(self._lower(text)))
        lower = unicodedata.normalize("NFC", self._lower(text))
        patterns = _patterns()
        if patterns.special.search(lower) is None:  # most texts; takes a third of the time
            return _cut(_MARKLESS_WORD.findall(lower))
        return _cut(
            patterns.word.findall(unicodedata.normalize("NFC", patterns.ignored.sub("", lower)))
        )

    def word_spans(self, text: str) -> list[WordSpan]:
        pattern = _MARKLESS_WORD if text.isascii() else _patterns().original_word
        return [match.span() for match in pattern.finditer(text)]

    def unstemmed(self, text: str) -> list[str]:
        return self.words(text)

    def _lower(self, text: str) -> str:
        return text.lower()


class Stemmed(Plain):
    """Analyser that stems the words of `Plain` with the Snowball stemmer of a language."""

    def __init__(self, name: str) -> None:
        self.name = name
        title = "".join(part.title() for part in name.split("_"))
        new_stemmer: Callable[[], _Stemmer]
        new_stemmer = getattr(import_module(f"snowballstemmer.{name}_stemmer"), f"{title}Stemmer")

        def stem(word: str) -> str:
            # A stemmer is not thread-safe, but cheap to create.
            return new_stemmer().stemWord(word)[:WORD_MAX] or word

        self._stem = lru_cache(_STEM_CACHE_SIZE)(stem)

    def words(self, text: str) -> list[str]:
        return list(map(self._stem, super().words(text)))

    def unstemmed(self, text: str) -> list[str]:
        return super().words(text)


class Turkish(Stemmed):
    """Analyser of Turkish: lower case maps I to a dotless i, and a dotted capital I to i."""

    def _lower(self, text: str) -> str:
        composed = unicodedata.normalize("NFC", text)  # compose I and a dot above
        return composed.replace("I", "\u0131").replace("\u0130", "i").lower()


class Folded(Plain):
    """Analyser that ignores case, accents, and differences of width or form (NFKD, case folding).

    Letters with a stroke and ligatures become the letters that people type for them: ø becomes o.
    Voicing marks of Japanese kana stay. Syllables of Hangul become their letters.
    """

    name = "folded"

    def words(self, text: str) -> list[str]:
        folded_text = folded(text)
        return _cut(_folded_word(folded_text).findall(folded_text))

    def word_spans(self, text: str) -> list[WordSpan]:
        folded_text = folded(text)
        return _to_original_spans(
            text,
            [match.span() for match in _folded_word(folded_text).finditer(folded_text)],
        )


class Bigrams(Folded):
    """Analyser of folded words that splits Han, Kana and Hangul into bigrams.

    These scripts are written with few or no spaces. In a run of their characters (of Hangul:
    syllables), each pair of neighbours is a word. A run of a single one is a word, too.
    """

    name = "cjk"

    def words(self, text: str) -> list[str]:
        folded_text = folded(text)
        return _cut([folded_text[start:end] for start, end in _bigrams(folded_text)])

    def word_spans(self, text: str) -> list[WordSpan]:
        return _to_original_spans(text, list(_bigrams(folded(text))))


def folded(text: str) -> str:
    """Fold a text for comparison, each character independently of its neighbours."""
    return text.lower() if text.isascii() else text.translate(_FOLDS)


class _Folds(dict[int, str]):
    """Cache: code point -> its folded text."""

    def __missing__(self, number: int) -> str:
        parts = unicodedata.normalize("NFKD", _patterns().ignored.sub("", chr(number)))
        base = (part for part in parts if part in _VOICING or not unicodedata.combining(part))
        self[number] = "".join(base).casefold().translate(_TYPED)
        return self[number]


_FOLDS = _Folds()
_TYPED = str.maketrans({"ø": "o", "æ": "ae", "œ": "oe", "ł": "l", "đ": "d", "\u0131": "i"})
"""Letters that NFKD does not decompose -> the letters that people type for them."""


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...


_MARKLESS_WORD = re.compile(r"\w+")
"""A word of a text without combining marks and ignored characters."""

_VOICING = "\u3099\u309a"
"""Voicing marks of Japanese kana."""
_SELECTORS = {
    0x34F,
    *range(0x180B, 0x180E),
    0x180F,
    *range(0xFE00, 0xFE10),
    *range(0xE0100, 0xE01F0),
}
"""Invisible combining marks: variation selectors, and the combining grapheme joiner."""
_TAGS = {0xE0001, *range(0xE0020, 0xE0080)}
_ZERO_WIDTH_SPACE = 0x200B
_ASTRAL_START = 0x10000
_ASTRAL = "\U00010000-\U0010ffff"

_HAN = "\u3005\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"
_HANGUL_LEADING = "\u1100-\u115f\ua960-\ua97c"
_HANGUL_VOWELS = "\u1160-\u11a7\ud7b0-\ud7c6"
_HANGUL_TRAILING = "\u11a8-\u11ff\ud7cb-\ud7fb"
_CJK = f"{_HAN}{_KANA}{_HANGUL_LEADING}{_HANGUL_VOWELS}{_HANGUL_TRAILING}"
_ASCII_OR_NOT = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]+")


def _folded_word(folded_text: str) -> re.Pattern[str]:
    """Return the word pattern for a folded text."""
    return _MARKLESS_WORD if folded_text.isascii() else _patterns().word


class _Patterns(NamedTuple):
    """Patterns that handle all combining marks, for which Python's `re` has no class."""

    special: re.Pattern[str]
    """A mark, an ignored character, or a character beyond 0xffff; in texts without any of these,
    `word` and `_MARKLESS_WORD` match the same."""
    ignored: re.Pattern[str]
    """A character that is removed from words."""
    word: re.Pattern[str]
    """A word of a text without ignored characters."""
    original_word: re.Pattern[str]
    """A word of the original text."""
    run: re.Pattern[str]
    """Either a run of characters of Han, Kana or Hangul, which is group 1, or another word."""
    syllable: re.Pattern[str]
    """A character of Han or Kana with its marks, or a syllable of Hangul."""


@cache
def _patterns() -> _Patterns:
    # From 0x20000 on, the only marks and format characters are `_TAGS` and `_SELECTORS`.
    by_category: dict[str, set[int]] = {}
    for number in range(0x80, 0x20000):
        by_category.setdefault(unicodedata.category(chr(number)), set()).add(number)
    ignored = by_category["Cf"].union(by_category["Me"], _TAGS, _SELECTORS) - {_ZERO_WIDTH_SPACE}
    marks = by_category["Mn"].union(by_category["Mc"])
    mark, mark_or_ignored = _character_class(marks), _character_class(marks | ignored)
    han = f"[{_HAN}{_KANA}]{mark}*+"
    leading, vowel, trailing = (
        f"[{_HANGUL_LEADING}]",
        f"[{_HANGUL_VOWELS}]",
        f"[{_HANGUL_TRAILING}]",
    )
    hangul = f"{leading}{vowel}?{trailing}?|{vowel}{trailing}?|{trailing}"
    other = rf"[^\W{_CJK}]"
    return _Patterns(
        re.compile(f"[{_class_ranges(marks | ignored, end=_ASTRAL_START)}{_ASTRAL}]"),
        re.compile(_character_class(ignored)),
        re.compile(rf"\w++(?:{mark}++\w*+)*+"),
        re.compile(rf"\w++(?:{mark_or_ignored}++\w*+)*+"),
        re.compile(f"((?:{han}|{hangul})+)|{other}++(?:{mark}++{other}*+)*+"),
        re.compile(f"{han}|{hangul}"),
    )


def _character_class(numbers: set[int]) -> str:
    """Return a pattern for one of these characters.

    Python's `re` tests ranges beyond 0xffff one by one; this pattern has it test them only for
    characters beyond 0xffff.
    """
    astral = f"[{_ASTRAL}](?<=[{_class_ranges(numbers, _ASTRAL_START)}])"
    return f"(?:[{_class_ranges(numbers, end=_ASTRAL_START)}]|{astral})"


def _class_ranges(numbers: set[int], begin: int = 0, end: int = maxunicode + 1) -> str:
    """Return the given code points in [begin, end) as ranges for a character class of `re`."""
    ranges: list[list[int]] = []
    for number in sorted(number for number in numbers if begin <= number < end):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


def _bigrams(folded_text: str) -> Iterator[WordSpan]:
    """Yield the spans of the words of a folded text; a CJK run yields those of its bigrams."""
    patterns = _patterns()
    for run in patterns.run.finditer(folded_text):
        if run[1] is None:
            yield run.span()
            continue
        ends = [syllable.end() for syllable in patterns.syllable.finditer(folded_text, *run.span())]
        yield from zip([run.start(), *ends], ends[1:] or ends, strict=False)


def _to_original_spans(text: str, spans: list[WordSpan]) -> list[WordSpan]:
    """Map spans in `folded(text)` to spans in `text`."""
    if text.isascii():
        return spans
    origins: list[int] = []  # position in `text` of each character of the folded text
    for part in _ASCII_OR_NOT.finditer(text):
        if part[0].isascii():
            origins += range(*part.span())
        else:
            for position, character in enumerate(part[0], part.start()):
                origins += [position] * _folded_length(character)
    origins.append(len(text))
    # Characters that fold to nothing, such as accents, belong to the word before them.
    return [(origins[start], max(origins[end - 1] + 1, origins[end])) for start, end in spans]


@lru_cache(1 << 14)
def _folded_length(character: str) -> int:
    return len(folded(character))


def _cut(words: list[str]) -> list[str]:
    if max(map(len, words), default=0) <= WORD_MAX:
        return words
    return [word[:WORD_MAX] for word in words]
