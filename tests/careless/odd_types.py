"""Flows whose functions use types that encoding changes, or that compare as equal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple

from driftline import Context, Flow, MapState, ReducingState, ValueState
from tests.careless.changed import mark
from tests.careless.records import Record, words


class Size(IntEnum):
    SHORT = 1
    LONG = 2


class Kind(StrEnum):
    EVEN = "even"
    ODD = "odd"


class Colour(Enum):
    RED = 1


class Word(NamedTuple):
    word: str
    document: int


class Text(str):
    pass


# Types that encoding changes --------------------------------------------------------------------


def typed(record: Record) -> Sequence[object]:
    """Return another type for each record; some cannot be encoded."""
    number = record["id"]
    assert isinstance(number, int)
    deep: object = number
    for _ in range(1100):
        deep = (deep,)
    return [
        Word(str(record["key"]), number),
        (Text(record["key"]), Size.LONG),
        [record["key"], [number]],
        (record["key"], {number}),
        (record["key"], 2**64 * number),
        (record["key"], deep),
        (record["key"], datetime(2026, 1, 1)),
        (record["key"], Colour.RED),
        (record["key"], "\ud800"),
        (record["key"], Kind.EVEN),
        (record["key"], object()),
    ][number % 11]


def remember(
    context: Context,
    element: Sequence[object],
    state: ValueState[object],
    by_kind: MapState[object, object],
) -> Iterator[object]:
    """Store types of all kinds, and return the types found in the states."""
    found = state.get()
    text = [type(found).__name__, *(type(kind).__name__ for kind in by_kind)]
    number = len(by_kind) + len(str(element[-1]))
    by_kind[Kind.ODD if number % 2 else Size.LONG] = Word("w", number)
    by_kind[Word(str(element[0]), number % 3)] = (Size.SHORT, Text("x"))
    by_kind[(Kind.EVEN, number % 2)] = [Size.SHORT]
    odd: list[object] = [Word("kept", 1), Kind.ODD, 2**65, {number}, (Size.LONG, [1]), Colour.RED]
    yield element[0], ",".join(text), [type(v).__name__ for v in by_kind.values()]
    state.set(odd[number % 6])


def odd_key(element: Any) -> object:
    kind = type(element[-1]).__name__
    if kind == "int":
        return float("nan")
    return Kind.ODD if kind == "str" else Word("key", 1)


types = Flow("types")
types.source("records").map(typed, name="typed").key_by(0).process(
    remember, ValueState[object]("last"), MapState[object, object]("by-kind"), name="remember"
).sink()

odd_keys = Flow("odd-keys")
odd_keys.source("records").map(typed, name="typed").key_by(odd_key).process(
    lambda context, element, number: [(element, type(context.key).__name__, number.add(1))],
    ReducingState[int]("number", int.__add__),
    name="number",
).sink()


# Keys that Python considers equal ---------------------------------------------------------------

EQUAL = (5, 5.0, 1, True, 1.0, 0, False, 0.0, -0.0, (1, "a"), (True, "a"), ["no key"])


def equal_key(element: tuple[int, int]) -> object:
    return EQUAL[element[0] % len(EQUAL)]


def count_by_key(
    context: Context, element: tuple[int, int], counts: MapState[object, int]
) -> Iterator[object]:
    for key in (context.key, EQUAL[element[1] % 9]):
        counts[key] = counts.get(key, 0) + element[1]
    yield repr(context.key), [(repr(key), count) for key, count in counts.items()]


equal_keys = Flow("equal-keys")
equal_keys.source("records").map(lambda r: (r["id"], len(r["text"])), name="sizes").key_by(
    equal_key
).process(count_by_key, MapState[object, int]("counts"), name="count").sink()

# Values passed between functions of one segment -------------------------------------------------


@dataclass
class Silent:
    """Value with the same repr whatever it contains."""

    number: int = field(repr=False, compare=False)


class AnyCase(str):
    """Text with its own equality."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str.lower(self) == str.lower(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str.lower(self))


def in_any_form(element: tuple[str, object], total: ReducingState[int]) -> object:
    """Return another type for each number; a late element changes the next output's type."""
    number = total.add(1)
    forms: list[object] = [
        [number // 7],
        (number // 7,),
        Silent(number),
        iter([number]),
        {"n": number},
        Text(number),
        Word(element[0], number),
    ]
    return forms[number % 7]


def shown_and_spoilt(found: Any) -> object:
    shown = type(found).__name__, str(found)
    if isinstance(found, dict):
        found["n"] = shown
    return shown


objects = Flow("objects")
objects.source("records").flat_map(words, name="words").key_by(
    lambda element: len(element[0])
).scan(in_any_form, ReducingState[int]("total", int.__add__), name="in-any-form").map(
    shown_and_spoilt, name="shown"
).sink()


def three_times(record: Record) -> list[Record]:
    letters = iter(str(record["text"]))
    return [record, record, {"inner": record, "text": "", "letters": letters}, record]


shared = Flow("shared")
shared.source("records").flat_map(three_times, name="three-times").map(mark, name="mark").map(
    lambda record: (*sorted(record), str(record["text"])), name="looks"
).sink()

any_case = Flow("any-case")
any_case.source("records").flat_map(
    lambda record: [AnyCase(word.title()) if len(word) % 2 else word for word, _ in words(record)],
    name="words",
).key_by(lambda word: AnyCase(word[:1])).scan(
    lambda word, number: (AnyCase(word), number.add(1)),
    ReducingState[int]("number", int.__add__),
    name="number",
).sink()


def quote(element: tuple[str, Any], book: MapState[object, int]) -> object:
    """Store prices such as 5 and 5.0, and delete them again."""
    word, number = element
    price = [number % 4, float(number % 4), -0.0, bool(number % 2), (number % 2, 1.0)][number % 5]
    if price in book and len(word) % 2:
        del book[price]
    else:
        book[price] = number
    if number % 11 == 0:
        raise ValueError(list(book))
    return list(book)


prices = Flow("prices")
prices.source("records").flat_map(words, name="words").key_by(lambda element: len(element[0])).scan(
    quote, MapState[object, int]("book"), name="quote"
).sink()
