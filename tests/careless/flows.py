"""Flows as people write them: functions that are deterministic, and not careful.

All take records ``{"id": int, "key": str, "text": str}``, as the simulation makes them.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple

from driftline import Context, Flow, ListState, MapState, ReducingState, ValueState

Record = dict[str, object]


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


def words(record: Record) -> list[tuple[str, object]]:
    return [(word, record["id"]) for word in str(record["text"]).split()]


# Values in states that are changed -----------------------------------------------------------


def count(
    context: Context, element: tuple[str, object], state: ValueState[dict[str, int]]
) -> Iterator[tuple[str, int]]:
    found = state.get() or {"n": 0}
    found["n"] += 1
    state.set(found)
    yield element[0], found["n"]
    found["n"] = -1  # in vain: it has been put


def gather(record: Record, state: ValueState[list[object]]) -> tuple[object, object]:
    ids = state.get([])
    ids.append(record["id"])
    state.set(ids)
    return record["key"], ids


def group(
    context: Context,
    record: Record,
    by_word: MapState[object, object],
    seen: ListState[dict[str, object]],
) -> Iterator[object]:
    for word in str(record["text"]).split():
        ids = by_word.setdefault(word, [])
        assert isinstance(ids, list)
        ids.append((record["id"], {"at": len(ids)}))
        by_word[word] = ids
    seen.append(record)
    record["text"] = "changed after it was put"
    seen[-1]["text"] = "changed in vain"
    if len(seen) > 5:
        yield "full", [found["text"] for found in seen]
        seen.clear()
        by_word.popitem()
        by_word.clear()
    yield record["key"], by_word, dict(by_word)


def merge(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    for word, number in other.items():
        one[word] = one.get(word, 0) + number
    return one


def tally(record: Record, total: ReducingState[dict[str, int]]) -> dict[str, int]:
    return total.add(dict.fromkeys(str(record["text"]).split(), 1))


mutable_value = Flow("mutable-value")
mutable_value.source("records").flat_map(words, name="words").key_by(lambda e: e[0]).process(
    count, ValueState[dict[str, int]]("counts"), name="count"
).sink()

mutable_list = Flow("mutable-list")
mutable_list.source("records").key_by("key").scan(
    gather, ValueState[list[object]]("ids"), name="gather"
).sink()

mutable_everywhere = Flow("mutable-everywhere")
mutable_everywhere.source("records").key_by(lambda record: record["key"]).process(
    group,
    MapState[object, object]("by-word"),
    ListState[dict[str, object]]("seen"),
    name="group",
).sink()

mutable_fold = Flow("mutable-fold")
mutable_fold.source("records").key_by("key").scan(
    tally, ReducingState("total", merge), name="tally"
).sink()


# Arguments and outputs that are changed -------------------------------------------------------


def shout(record: Record, number: ReducingState[int]) -> Record:
    record["text"] = f"{record['text']}!"
    record["number"] = number.add(1)
    return record


def picky_shout(record: Record, number: ReducingState[int]) -> Record:
    """Changes its argument before it raises, in some orders only."""
    shout(record, number)
    if number.get(0) % 3 == 0:
        raise ValueError(f"an awkward number: {record['number']}, {record['text']}")
    return record


def mark(record: Record) -> Record:
    record["text"] = f"marked {record['text']}"
    record.setdefault("marks", []).append(len(record))  # type: ignore[attr-defined]
    return record


def mark_some(record: Record) -> Record:
    mark(record)
    if str(record["text"]).endswith("a"):
        raise ValueError("it ends with an a")
    return record


changed_argument = Flow("changed-argument")
changed_argument.source("records").key_by("key").scan(
    shout, ReducingState[int]("number", int.__add__), name="shout"
).sink()

changed_and_raised = Flow("changed-and-raised")
changed_and_raised.source("records").map(mark_some, name="mark-some").key_by("key").scan(
    picky_shout, ReducingState[int]("number", int.__add__), name="shout"
).map(mark, name="mark").sink()

branches = Flow("branches")
_records = branches.source("records")
_records.map(mark, name="mark").sink("marked")
_shouted = _records.key_by("key").scan(
    shout, ReducingState[int]("number", int.__add__), name="shout"
)
_shouted.map(mark, name="mark-shouted").sink("shouted-and-marked")
_shouted.sink("shouted")

changed_by_key = Flow("changed-by-key")
changed_by_key.source("records").key_by(lambda record: record.pop("key")).scan(
    shout, ReducingState[int]("number", int.__add__), name="shout"
).sink()


# Types that do not travel as they are ---------------------------------------------------------


def typed(record: Record) -> Sequence[object]:
    """Another type for each record; some cannot travel."""
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
    """Keeps types of all kinds, and shows the types that it finds."""
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


# What functions of one segment hand to each other ----------------------------------------------


@dataclass
class Silent:
    """Looks the same whatever is in it."""

    number: int = field(repr=False, compare=False)


class AnyCase(str):
    """A text with an equality of its own."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str.lower(self) == str.lower(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str.lower(self))


def in_any_form(element: tuple[str, object], total: ReducingState[int]) -> object:
    """Another type for each number: that of a late element's successor changes."""
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
    """Prices come as 5 and as 5.0, and are taken off again."""
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


# Functions that leave, and outputs of another length than was said -----------------------------


def leave(record: Record, number: ReducingState[int]) -> Record:
    if number.add(1) % 4 == 0:
        sys.exit()
    return record


def split(record: Record) -> list[tuple[str, ...]]:
    return [tuple(str(record["text"]).split()[:3])]


leaving = Flow("leaving")
leaving.source("records").key_by("key").scan(
    leave, ReducingState[int]("number", int.__add__), name="leave"
).sink()

fields = Flow("fields")
fields.source("records").flat_map(split, name="split", fields=("a", "b", "c")).key_by("c").scan(
    lambda element, number: (*element, number.add(1)),
    ReducingState[int]("number", int.__add__),
    name="number",
    fields=("a", "b", "c", "n"),
).sink()

# A set has an order of its own ------------------------------------------------------------------


def different_words(record: Record) -> Iterator[tuple[str, str]]:
    for word in set(str(record["text"]).split()):
        yield word[:1], word


def pair(element: tuple[str, str], last: ValueState[str]) -> tuple[tuple[str, str], str | None]:
    before = last.get()
    last.set(element[1])
    return element, before


sets = Flow("sets")
sets.source("records").flat_map(different_words, name="words").key_by(0).scan(
    pair, ValueState[str]("last"), name="pairs"
).sink()


def growing(record: Record) -> Iterator[dict[str, object]]:
    """Yields the same dict again and again, and clears it in the end."""
    found: dict[str, object] = {"key": record["key"]}
    for word in str(record["text"]).split():
        found[word] = record["id"]
        yield found
    found.clear()


def latest(
    context: Context, found: dict[str, object], last: ValueState[object]
) -> Iterator[dict[str, object]]:
    yield found
    found["last"] = last.get()
    yield found
    last.set(len(found))
    found.clear()


yielded = Flow("yielded")
yielded.source("records").flat_map(growing).key_by("key").process(
    latest, ValueState[object]("last"), name="latest"
).sink()

# What the language itself makes easy to get wrong ------------------------------------------------


def first_long(record: Record) -> str:
    """Raises StopIteration where there is none, which ends whoever goes through a `map`."""
    return next(word for word in str(record["text"]).split() if len(word) > 3)


def first_of_two(record: Record, number: ReducingState[int]) -> object:
    number.add(1)
    words = str(record["text"]).split()
    return next(word for word in words if len(word) == 2), number.get()


stop_iteration = Flow("stop-iteration")
stop_iteration.source("records").filter(
    lambda record: next(iter(str(record["text"]).split()[1:])) != "a", name="filter"
).key_by(first_long).scan(first_of_two, ReducingState[int]("n", int.__add__), name="scan").map(
    lambda pair: next(letter for letter in str(pair) if letter < "n"), name="letter"
).sink()


def misuse(record: Record, seen: ListState[Any], by_word: MapState[Any, Any]) -> object:
    """Slices, iterators that outlive a change, mistakes whose texts name the types."""
    number = len(seen)
    before = iter(seen)
    seen.append({"n": record["id"]} if number > 3 else record["id"])
    by_word[str(number)] = [number]
    found = [*before, seen[-3:], by_word.get("3", default=0), isinstance(seen, ListState)]
    mistakes: list[Callable[[], object]] = [
        lambda: seen.sort(),  # type: ignore[attr-defined]
        lambda: seen + 1,  # type: ignore[operator]
        lambda: seen.__setitem__(slice(0, 1), (7,)),
        lambda: seen.append(),  # type: ignore[call-arg]
        lambda: by_word.pop(),  # type: ignore[call-overload]
        lambda: by_word.add(1),  # type: ignore[attr-defined]
        lambda: seen.extend(seen) if number < 9 else None,
        lambda: None,
    ]
    mistakes[number % 8]()
    return found


misused = Flow("misused")
misused.source("records").key_by("key").scan(
    misuse, ListState[Any]("seen"), MapState[Any, Any]("by-word"), name="misuse"
).sink()


def deepen(record: Record, number: ReducingState[int]) -> object:
    """Deeper than anything can travel, and even be shown."""
    deep: object = number.add(1)
    for _ in range(2000):
        deep = [deep]
    return deep if number.get(0) % 3 else record["key"]


nested = Flow("nested")
nested.source("records").key_by("key").scan(
    deepen, ReducingState[int]("number", int.__add__), name="deepen"
).sink()

ALL = (
    "mutable_value",
    "mutable_list",
    "mutable_everywhere",
    "mutable_fold",
    "changed_argument",
    "changed_and_raised",
    "branches",
    "changed_by_key",
    "types",
    "odd_keys",
    "leaving",
    "fields",
    "sets",
    "stop_iteration",
    "misused",
    "nested",
    "objects",
    "shared",
    "any_case",
    "prices",
    "yielded",
)
