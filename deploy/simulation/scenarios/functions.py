"""Stateless functions of random flows, on elements (word, number)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Element = tuple[str, int]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Named(Generic[T]):
    """A function and a description of it."""

    name: str
    function: Callable[[Element], T]
    fails: bool = False
    """Whether it raises for some elements."""


def _fail(element: Element, divisor: int) -> Element:
    if element[1] % divisor == 1:
        raise ValueError(f"{element[1]} leaves 1")
    return element


def _in_place(element: Element | list[Any]) -> Element:
    """Returns a list; changes the argument in place if it is a list, which others may share."""
    if isinstance(element, list):
        element[1] += 1000
        return element  # type: ignore[return-value]  # which is a sequence, too
    return list(element)  # type: ignore[return-value]


MAPS: tuple[Named[Element], ...] = (
    Named("word backwards", lambda e: (e[0][::-1], e[1])),
    Named("initial", lambda e: (e[0][:1], e[1])),
    Named("number of letters added", lambda e: (e[0], e[1] + len(e[0]))),
    Named("number modulo 7 put into the word", lambda e: (f"{e[0]}{e[1] % 7}", e[1])),
    Named("fails for 1 modulo 9", lambda e: _fail(e, 9), fails=True),
    Named("a list, or 1000 added in place", lambda e: _in_place(e)),
    Named("a list, or 1000 added in place", lambda e: _in_place(e)),
)

PREDICATES: tuple[Named[object], ...] = (
    Named("odd numbers only", lambda e: e[1] % 2),
    Named("no multiples of 3", lambda e: e[1] % 3),
    Named("words of two letters or more", lambda e: len(e[0]) > 1),
)

FLAT_MAPS: tuple[Named[Iterable[Element]], ...] = (
    Named("twice", lambda e: (e, (e[0], e[1] + 1))),
    Named("as often as its number modulo 3", lambda e: [(e[0], e[1] + i) for i in range(e[1] % 3)]),
    Named("itself and its initial", lambda e: (e, (e[0][:1], e[1]))),
)

KEYS: tuple[Named[object], ...] = (
    Named("word", lambda e: e[0]),
    Named("initial", lambda e: e[0][:1]),
    Named("number modulo 3", lambda e: e[1] % 3),
    Named("word and parity", lambda e: (e[0][:2], bool(e[1] % 2))),
    Named("always the same", lambda e: None),
)
