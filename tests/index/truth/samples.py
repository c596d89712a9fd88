"""Documents of few words, and queries of all forms that find some of them."""

from __future__ import annotations

from datetime import date, timedelta
from random import Random

WORDS = (
    *("tea", "teas", "teapot", "leaf", "leaves", "green", "black", "milk", "water", "kettle"),
    *(
        "boil",
        "boiled",
        "boiling",
        "cup",
        "cups",
        "pot",
        "river",
        "rivers",
        "bank",
        "boat",
        "boats",
    ),
    *("sail", "sailing", "stone", "stones", "bridge", "bridges", "mill", "miller", "wheel"),
    *("wheels", "cat", "cats", "dog", "dogs", "house", "houses", "garden", "gardens", "walk"),
    *("walked", "walking", "run", "running", "night", "nights", "day", "days", "light", "lights"),
    *("star", "stars", "cloud", "clouds", "rain", "rains", "wind", "winds", "snow", "north"),
)
TAGS = "red", "green", "blue", "grey", "white"

SCHEMA = """
[collections.documents]
others = "stored"

[collections.documents.fields]
title = {kind = "text", weight = 2.0}
text = {kind = "text", analyser = "english"}
tags = {kind = "keyword"}
year = {kind = "number"}
day = {kind = "date"}
"""

FIRST_DAY = date(2020, 1, 1)


def document(chance: Random, mark: str) -> dict[str, object]:
    """A document; its mark is nowhere else, and searched for in both texts."""
    found: dict[str, object] = {
        "title": " ".join((*_words(chance, 1, 4), f"t{mark}")),
        "text": " ".join((f"x{mark}", *_words(chance, 3, 25), f"y{mark}")),
        "mark": mark,
    }
    if chance.random() < 0.7:
        found["tags"] = chance.sample(TAGS, chance.randint(1, 2))
    if chance.random() < 0.7:
        found["year"] = chance.randint(1990, 2000) / 2
    if chance.random() < 0.7:
        found["day"] = _day(chance)
    return found


def words_of(mark: str) -> tuple[str, ...]:
    """Words that only the document with a mark has: it is found by all of them, or by none."""
    return f"title:t{mark}", f"text:x{mark}", f"text:y{mark}"


def query(chance: Random) -> str:
    """A query of any form."""
    parts = [_part(chance) for _ in range(chance.choice((1, 1, 2, 3)))]
    match chance.randrange(4):
        case 0:
            return " OR ".join(parts)
        case 1:
            return f"({' OR '.join(parts)}) -{_word(chance)}"
        case 2:
            return f"{_part(chance)} ({' OR '.join(parts)})"
    return " ".join(parts)


def sort(chance: Random) -> str:
    """By what hits are sorted; mostly by their score."""
    return chance.choice(("", "", "", "", "year", "-year", "day", "-day", "tags", "-tags"))


def _part(chance: Random) -> str:
    word = _word(chance)
    match chance.randrange(13):
        case 0 | 1 | 2:
            return word
        case 3:
            return f"title:{word}"
        case 4:
            return f'"{word} {_word(chance)}"'
        case 5:
            return f'text:"{word} {_word(chance)}"'
        case 6:
            return f"{word[: chance.randint(2, 4)]}*"
        case 7:
            return f"{word}~"
        case 8:
            return f"tags:{chance.choice(TAGS)}"
        case 9:
            return f"year:[{chance.randint(990, 998) / 2} TO {chance.randint(998, 1000)}]"
        case 10:
            return f"day:[{_day(chance)} TO *]"
        case 11:
            return f"{chance.choice(('-', ''))}{chance.choice(('text', 'tags', 'year', 'day'))}:*"
    return f"({word} {_word(chance)})"


def _word(chance: Random) -> str:
    return WORDS[min(int(chance.expovariate(0.06)), len(WORDS) - 1)]


def _words(chance: Random, least: int, most: int) -> list[str]:
    return [_word(chance) for _ in range(chance.randint(least, most))]


def _day(chance: Random) -> str:
    return str(FIRST_DAY + timedelta(days=chance.randrange(60)))
