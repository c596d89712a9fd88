"""Functions of drawn flows, on elements (word, number): stateless functions, and keyed functions,
which read, change and clear every state type, alone and together.

No keyed function is commutative: a lost, duplicated or reordered element changes later outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from random import Random
from typing import Any, Generic, TypeVar
from zlib import crc32

from msgspec import Struct

from driftline.engine.operators.aggregates import (
    Aggregate,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Sum,
    Top,
)
from driftline.engine.operators.context import Context
from driftline.engine.operators.iterate import Again
from driftline.engine.operators.timers import TimedContext, Timer
from driftline.engine.operators.windows import Days, Hopping, Session, Tumbling, Windows
from driftline.engine.state.managed import ListState, MapState, ReducingState, State, ValueState

Element = tuple[str, int]

T = TypeVar("T")


class NamedFunction(Struct, Generic[T], frozen=True):
    """Stateless function with its description, which becomes a part of its step's name."""

    name: str
    function: Callable[[Element], T]
    fails: bool = False
    """Whether it raises for some elements."""


def _fail(element: Element, divisor: int) -> Element:
    if element[1] % divisor == 1:
        raise ValueError(f"{element[1]} leaves 1")
    return element


def _in_place(element: Element | list[Any]) -> Element:
    """Return a list; change an argument that is a list in place, although it may be shared."""
    if isinstance(element, list):
        element[1] += 1000
        return element  # type: ignore[return-value]  # which is a sequence, too
    return list(element)  # type: ignore[return-value]


MAPS: tuple[NamedFunction[Element], ...] = (
    NamedFunction("word backwards", lambda e: (e[0][::-1], e[1])),
    NamedFunction("initial", lambda e: (e[0][:1], e[1])),
    NamedFunction("number of letters added", lambda e: (e[0], e[1] + len(e[0]))),
    NamedFunction(
        "word, line separator, number modulo 7", lambda e: (f"{e[0]}\u2028{e[1] % 7}", e[1])
    ),
    NamedFunction("fails for 1 modulo 9", lambda e: _fail(e, 9), fails=True),
    NamedFunction("a list, or 1000 added in place", lambda e: _in_place(e)),
    NamedFunction("a list, or 1000 added in place", lambda e: _in_place(e)),
)

PREDICATES: tuple[NamedFunction[object], ...] = (
    NamedFunction("odd numbers only", lambda e: e[1] % 2),
    NamedFunction("no multiples of 3", lambda e: e[1] % 3),
    NamedFunction("words of two letters or more", lambda e: len(e[0]) > 1),
)

FLAT_MAPS: tuple[NamedFunction[Iterable[Element]], ...] = (
    NamedFunction("twice", lambda e: (e, (e[0], e[1] + 1))),
    NamedFunction(
        "as often as its number modulo 3", lambda e: [(e[0], e[1] + i) for i in range(e[1] % 3)]
    ),
    NamedFunction("itself and its initial", lambda e: (e, (e[0][:1], e[1]))),
)

EQUAL = (5, 5.0, 1, True, 1.0, 0, 0.0, -0.0, False)
"""Keys that Driftline distinguishes, although some are equal in Python."""


def _equal(number: int) -> object:
    """Return one of `EQUAL`."""
    return EQUAL[number % len(EQUAL)]


KEYS: tuple[NamedFunction[object], ...] = (
    NamedFunction("word", lambda e: e[0]),
    NamedFunction("initial", lambda e: e[0][:1]),
    NamedFunction("number modulo 3", lambda e: e[1] % 3),
    NamedFunction("word and parity", lambda e: (e[0][:2], bool(e[1] % 2))),
    NamedFunction("always the same", lambda e: None),
    NamedFunction("number as an int, a float or a bool", lambda e: _equal(e[1])),
    NamedFunction(
        "initial, and number as an int, a float or a bool", lambda e: (e[0][:1], _equal(e[1]))
    ),
)


class GeneratedFunction(Struct, Generic[T], frozen=True):
    """Keyed function with its states and a description, which becomes part of its step's name."""

    name: str
    function: Callable[..., T]
    states: tuple[State, ...]
    on_timer: Callable[..., T] | None = None


class KeyedFunctions(Struct, Generic[T], frozen=True):
    """Kind of keyed function.

    `make`: draws a function; `outputs`: about the largest number of outputs per element; `fails`:
    whether the function raises for some elements.
    """

    make: Callable[[Random], GeneratedFunction[T]]
    outputs: int = 1
    fails: bool = False


def mixed(one: object, other: object) -> int:
    """Return a number below 9973 that depends on both arguments and on their order."""
    return crc32(f"{one} {other}".encode()) % 9973


# Scans: one output per element. ----------------------------------------------------------------


def _value(rng: Random) -> GeneratedFunction[Element]:
    clear_at = rng.choice((3, 5, 0))

    def function(element: Element, seen: ValueState[int]) -> Element:
        number = mixed(seen.get(0), element[1])
        if clear_at and number % clear_at == 0:
            seen.clear()
        else:
            seen.set(number)
        return element[0], number

    return GeneratedFunction(
        f"mixes numbers, clears at 0 modulo {clear_at}", function, (ValueState("seen"),)
    )


def _text(rng: Random) -> GeneratedFunction[Element]:
    def function(element: Element, seen: ValueState[str]) -> Element:
        joined = f"{seen.get('')}.{element[0]}{element[1]}"[-40:]
        seen.set(joined)
        return element[0], mixed(joined, "")

    return GeneratedFunction("keeps the last 40 characters", function, (ValueState[str]("text"),))


def _reducing(rng: Random) -> GeneratedFunction[Element]:
    factor = rng.choice((31, 2))
    state = ReducingState[int]("total", lambda total, added: (total * factor + added) % 9973)

    def function(element: Element, total: ReducingState[int]) -> Element:
        return element[0], total.add(element[1])

    return GeneratedFunction(f"reduces to total * {factor} + number", function, (state,))


def _list(rng: Random) -> GeneratedFunction[Element]:
    longest = rng.choice((3, 6))

    def function(element: Element, numbers: ListState[int]) -> Element:
        word, number = element
        if len(numbers) and number % 4 == 0:
            number = mixed(numbers.pop(), number)
        elif len(numbers) and number % 4 == 1:
            numbers[0] = mixed(numbers[0], number)
        numbers.append(number)
        before = tuple(numbers)
        if len(numbers) > longest:
            numbers.clear()
        return word, mixed(before, word)

    return GeneratedFunction(
        f"appends, pops, replaces, clears after {longest}", function, (ListState("list"),)
    )


def _map(rng: Random) -> GeneratedFunction[Element]:
    largest = rng.choice((2, 4))

    def function(element: Element, numbers: MapState[str, int]) -> Element:
        word, number = element
        before = numbers.get(word, 0)
        if before and number % 3 == 0:
            del numbers[word]
        else:
            numbers[word] = number
        entries = numbers.items()
        if len(numbers) > largest:
            numbers.clear()
        return word, mixed(before, entries)

    return GeneratedFunction(
        f"puts, deletes, clears after {largest}", function, (MapState("numbers"),)
    )


def _map_of_equal_keys(rng: Random) -> GeneratedFunction[Element]:
    largest = rng.choice((2, 6))

    def function(element: Element, numbers: MapState[object, int]) -> Element:
        word, number = element
        key, other = _equal(number), _equal(number // len(EQUAL))
        before = numbers.get(key, 0), other in numbers
        if other in numbers and number % 3 == 0:
            del numbers[other]
        numbers[key] = number
        result = mixed(before, numbers.items())
        if len(numbers) > largest:
            numbers.popitem()
        return word, result

    states = (MapState[object, int]("of equal keys"),)
    return GeneratedFunction(
        f"puts and deletes equal keys of different types, {largest} at most", function, states
    )


def _failing(rng: Random) -> GeneratedFunction[Element]:
    divisor = rng.choice((5, 11))

    def function(element: Element, seen: ValueState[int]) -> Element:
        number = mixed(seen.get(0), element[1])
        seen.set(number)
        if number % divisor == 2:
            raise ValueError(f"{number} leaves 2")
        return element[0], number

    return GeneratedFunction(
        f"fails for states that are 2 modulo {divisor}", function, (ValueState("a"),)
    )


def _all(rng: Random) -> GeneratedFunction[Element]:
    total = ReducingState[int]("total", lambda one, other: (one * 3 + other) % 997)

    def function(
        element: Element,
        last: ValueState[str],
        sum_: ReducingState[int],
        recent: ListState[int],
        by_word: MapState[str, int],
    ) -> Element:
        word, number = element
        result = mixed((last.get(), tuple(recent), by_word.items()), sum_.add(number))
        last.set(word)
        recent.append(number)
        by_word[word] = by_word.get(word, 0) + 1
        if result % 4 == 0:
            recent.clear()
        if result % 7 == 0:
            by_word.clear()
            last.clear()
        return word, result

    last, recent = ValueState[str]("last"), ListState[int]("recent")
    states: tuple[State, ...] = (last, total, recent, MapState[str, int]("by word"))
    return GeneratedFunction("all states at once", function, states)


def _mutable(rng: Random) -> GeneratedFunction[Element]:
    longest = rng.choice((3, 5))

    def function(
        element: Element,
        last: ValueState[dict[str, int]],
        by_word: MapState[str, list[int]],
        recent: ListState[list[object]],
    ) -> Element:
        word, number = element
        counts = last.get({})
        counts[word] = counts.get(word, 0) + 1
        last.set(counts)
        counts.clear()  # a change of an object that was stored before must not change the state
        numbers = by_word.setdefault(word, [])
        numbers.append(number)
        by_word[word] = numbers
        numbers.clear()
        recent.append([word, numbers])
        recent[-1].append("not in the state")
        result = mixed((last.get(), by_word.items(), list(recent)), number)
        if len(recent) > longest:
            recent.clear()
            by_word.pop(word)
        return [word, result]  # type: ignore[return-value]  # a later map may change the list

    last = ValueState[dict[str, int]]("counts")
    states: tuple[State, ...] = (last, MapState("by word"), ListState("recent"))
    return GeneratedFunction(
        f"changes lists after putting them, clears after {longest}", function, states
    )


# Processes: any number of outputs. --------------------------------------------------------------


def _when_full(rng: Random) -> GeneratedFunction[Iterable[Element]]:
    full = rng.choice((2, 4))

    def function(
        context: Context, element: Element, words: ListState[str], last: MapState[str, int]
    ) -> Iterator[Element]:
        word, number = element
        words.append(word)
        last[word] = number
        if len(words) >= full:
            for other, value in last.items():
                yield other, mixed(value, tuple(words))
            words.clear()
            if word in last:
                del last[word]

    states = (ListState[str]("words"), MapState[str, int]("last"))
    return GeneratedFunction(f"gathers {full}, then one for each word", function, states)


def _random(rng: Random) -> GeneratedFunction[Iterable[Element]]:
    def function(context: Context, element: Element, seen: ValueState[int]) -> Iterator[Element]:
        before = seen.get(0)
        seen.set(mixed(before, element[1]))
        for _ in range(context.random.randrange(3)):
            yield element[0], mixed(before, context.random.random())

    return GeneratedFunction(
        "up to two, by the context's random numbers", function, (ValueState("seen"),)
    )


def _key(rng: Random) -> GeneratedFunction[Iterable[Element]]:
    def function(context: Context, element: Element, seen: ValueState[int]) -> list[Element]:
        number = mixed(seen.get(0), element[1])
        seen.set(number)
        if number % 7 == 3:
            raise ValueError(f"{context.key!r} after {number}")
        return [(f"{context.key!r}", number)]

    return GeneratedFunction("the key as text; some fail", function, (ValueState("seen"),))


def _changes(rng: Random) -> GeneratedFunction[Iterable[Element]]:
    def function(context: Context, element: Element, last: ValueState[int]) -> list[Element]:
        word, number = element
        parity = mixed(last.get(), number) % 3
        if parity == 0:
            return []
        last.set(number)
        if parity == 1 and number % 5 == 0:
            raise ValueError(f"{number} after {last.get()}")
        return [(word, number + i) for i in range(parity)]

    return GeneratedFunction(
        "none, one or two, by the last number; some fail", function, (ValueState("last"),)
    )


SCANS: tuple[KeyedFunctions[Element], ...] = (
    *map(
        KeyedFunctions,
        (_value, _text, _reducing, _list, _map, _map_of_equal_keys, _all, _mutable, _mutable),
    ),
    KeyedFunctions(_failing, fails=True),
)

PROCESSES: tuple[KeyedFunctions[Iterable[Element]], ...] = (
    KeyedFunctions(_when_full, 3),
    KeyedFunctions(_random, 2),
    KeyedFunctions(_key, 1, fails=True),
    KeyedFunctions(_changes, 2, fails=True),
)


# Processes with timers. -------------------------------------------------------------------------


def event_time(record: dict[str, object]) -> object:
    """Return the event time of a record in us, up to 50 us out of order; some are invalid."""
    number = int(str(record["id"]))
    if number % 13 == 5:
        return "yesterday"
    return number * 10 - crc32(str(number).encode()) % 50 - 200


def _alarms(rng: Random) -> GeneratedFunction[Iterable[Element]]:
    spread, repeats = rng.choice((20, 200)), rng.choice((0, 2, 3))

    def function(
        context: TimedContext, element: Element, seen: ValueState[int]
    ) -> Iterator[Element]:
        word, number = element
        before = mixed(seen.get(0), number)
        seen.set(before)
        timers = context.timers
        if before % 5 == 0:
            timers.cancel("a")
        elif before % 5 == 1 and (at := timers.get("a")) is not None:
            timers.set("a", at + spread)
        else:
            timers.set("ab"[before % 2], context.event_time + before % spread - 10)
        if before % 11 == 7:
            raise ValueError(f"{context.key!r} with timers")
        if before % 3:
            yield word, mixed(before, (context.watermark, context.event_time, timers.get("b")))

    def on_timer(context: TimedContext, timer: Timer, seen: ValueState[int]) -> Iterator[Element]:
        before = mixed(seen.get(0), timer)
        if before % 4:
            seen.set(before)
        else:
            seen.clear()
        if before % 9 == 4:
            raise ValueError(f"{context.key!r} at {timer.at}")
        if repeats and before % repeats == 0 and not context.at_end:
            context.timers.set(timer.name, timer.at + 1 + before % spread)
        yield timer.name, mixed(before, context.watermark)

    return GeneratedFunction(
        f"sets timers up to {spread} ahead", function, (ValueState("seen"),), on_timer
    )


WINDOWS: tuple[Windows, ...] = (
    Tumbling(timedelta(microseconds=100)),
    Hopping(
        timedelta(microseconds=90),
        every=timedelta(microseconds=40),
        offset=timedelta(microseconds=15),
    ),
    Session(timedelta(microseconds=25)),
    Days("Europe/Berlin"),
)


AGGREGATES: dict[str, Aggregate] = {
    "count": Count(),
    "sum": Sum(lambda e: e[1] / 3),
    "mean": Mean(1),
    "first": First(1),
    "last": Last(),
    "most": Max(1),
    "least": Min(0),
    "different": CountDistinct(0),
    "all": Collect(),
    "top": Top(2, 1),
}


def of_row(row: dict[str, object]) -> Element:
    """Return an element that depends on all of a row: of an aggregate, or a late element's."""
    return str(row.get("key", "late")), mixed(sorted(map(str, row.items())), "")


def of_pair(pair: tuple[object, object]) -> Element:
    """Return an element that depends on both elements of a join."""
    one, other = pair
    word = one if isinstance(one, tuple) else other
    return str(word[0]) if isinstance(word, tuple) else "", mixed(one, other)


def in_rounds(
    context: Context, element: Element, total: ReducingState[int], seen: MapState[str, int]
) -> Iterator[Element | Again[Element]]:
    """Send smaller numbers to other words in the next round, if the number is above 20."""
    word, number = element
    seen[word[:2]] = number
    if number > 20:
        yield Again((word[::-1], number // 20))
        if number % 3 == 0:
            yield Again((word[:1], number // 30))
    if number % 5 != 4:
        yield word, mixed(total.add(number), len(seen))


def in_table(element: Element, table: Mapping[object, Element]) -> list[Element]:
    """Return an element that depends on the whole table; for a few elements return none."""
    mix = mixed(element, table.items())
    return [(element[0], mix)] if mix % 5 else []


TIMED: tuple[KeyedFunctions[Iterable[Element]], ...] = (KeyedFunctions(_alarms, 2, fails=True),)
