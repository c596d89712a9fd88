"""Random documents from a small vocabulary, and queries of all forms that match some of them."""

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


def draw_document(rng: Random, mark: str) -> dict[str, object]:
    """Draw a document whose title and text contain words made from the unique `mark`."""
    found: dict[str, object] = {
        "title": " ".join((*_draw_words(rng, 1, 4), f"t{mark}")),
        "text": " ".join((f"x{mark}", *_draw_words(rng, 3, 25), f"y{mark}")),
        "mark": mark,
    }
    if rng.random() < 0.7:
        found["tags"] = rng.sample(TAGS, rng.randint(1, 2))
    if rng.random() < 0.7:
        found["year"] = rng.randint(1990, 2000) / 2
    if rng.random() < 0.7:
        found["day"] = _draw_day(rng)
    return found


def queries_for_mark(mark: str) -> tuple[str, ...]:
    """Return queries, each of which matches only the document with this mark."""
    return f"title:t{mark}", f"text:x{mark}", f"text:y{mark}"


def draw_query(rng: Random) -> str:
    """Draw a query of any form."""
    parts = [_draw_part(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    match rng.randrange(4):
        case 0:
            return " OR ".join(parts)
        case 1:
            return f"({' OR '.join(parts)}) -{_draw_word(rng)}"
        case 2:
            return f"{_draw_part(rng)} ({' OR '.join(parts)})"
    return " ".join(parts)


def draw_sort(rng: Random) -> str:
    """Draw a sort parameter; most often "", which sorts by score."""
    return rng.choice(("", "", "", "", "year", "-year", "day", "-day", "tags", "-tags"))


def _draw_part(rng: Random) -> str:
    word = _draw_word(rng)
    match rng.randrange(13):
        case 0 | 1 | 2:
            return word
        case 3:
            return f"title:{word}"
        case 4:
            return f'"{word} {_draw_word(rng)}"'
        case 5:
            return f'text:"{word} {_draw_word(rng)}"'
        case 6:
            return f"{word[: rng.randint(2, 4)]}*"
        case 7:
            return f"{word}~"
        case 8:
            return f"tags:{rng.choice(TAGS)}"
        case 9:
            return f"year:[{rng.randint(990, 998) / 2} TO {rng.randint(998, 1000)}]"
        case 10:
            return f"day:[{_draw_day(rng)} TO *]"
        case 11:
            return f"{rng.choice(('-', ''))}{rng.choice(('text', 'tags', 'year', 'day'))}:*"
    return f"({word} {_draw_word(rng)})"


def _draw_word(rng: Random) -> str:
    return WORDS[min(int(rng.expovariate(0.06)), len(WORDS) - 1)]


def _draw_words(rng: Random, count_min: int, count_max: int) -> list[str]:
    return [_draw_word(rng) for _ in range(rng.randint(count_min, count_max))]


def _draw_day(rng: Random) -> str:
    return str(FIRST_DAY + timedelta(days=rng.randrange(60)))
