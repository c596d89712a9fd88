"""Flows with mistakes: exits, the order of a set, early ends of iteration, misuse of states."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

from driftline import Flow, ListState, MapState, ReducingState, ValueState
from tests.careless.records import Record

# Functions that exit, and outputs of another length than declared -------------------------------


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


# The order of a set ------------------------------------------------------------------------------


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


# Mistakes that the language invites -------------------------------------------------------------


def first_long(record: Record) -> str:
    """Raise StopIteration if there is none, which would silently end an iteration over a `map`."""
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
    """Use slices, iterators across a change, and operations whose error texts name the types."""
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
    """Return a value that is too deep to be encoded, or even printed."""
    if number.add(1) % 8:
        return record["key"]
    deep: object = number.get(0)
    for _ in range(2000):
        deep = [deep]
    return deep


nested = Flow("nested")
nested.source("records").key_by("key").scan(
    deepen, ReducingState[int]("number", int.__add__), name="deepen"
).sink()
