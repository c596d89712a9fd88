"""Operators: functions, lambdas and methods; streams have the expected types."""

import operator
from collections.abc import Iterator
from typing import Any, TypedDict, assert_type

from driftline import Context, Flow, KeyedStream, ReducingState, Stream


class Line(TypedDict):
    text: str


class Shortener:
    """Object with parameters, whose methods are functions of a flow."""

    def __init__(self, length: int) -> None:
        self.length = length

    def shorten(self, word: str) -> str:
        return word[: self.length]


def words(line: Line) -> Iterator[str]:
    yield from line["text"].split()


def long(stream: Stream[str]) -> Stream[str]:
    """Add a part of a flow that several flows share."""
    return stream.filter(lambda word: len(word) > 3)


def count_by(stream: KeyedStream[str, str], name: str) -> Stream[tuple[str, int]]:
    def count(word: str, total: ReducingState[int]) -> tuple[str, int]:
        return word, total.add(1)

    return stream.scan(count, ReducingState(name, operator.add))


def keys(context: Context, word: str) -> list[str]:
    key: str = context.key
    return [key, f"{word} {context.label} {context.random.random()}"]


flow = Flow("operators")
lines = flow.source("lines", of=Line)
assert_type(lines, Stream[Line])
assert_type(lines.flat_map(words), Stream[str])
assert_type(lines.map(len), Stream[int])
assert_type(lines.flat_map(lambda line: line["text"].split()), Stream[str])
assert_type(lines.key_by("text"), KeyedStream[Any, Line])
assert_type(lines.key_by(lambda line: len(line["text"])), KeyedStream[int, Line])

short = long(lines.flat_map(words, name="words")).map(Shortener(5).shorten)
assert_type(short, Stream[str])
assert_type(
    short.map(lambda word: (word, 1)).filter(operator.itemgetter(1)), Stream[tuple[str, int]]
)
assert_type(short.key_by(str.lower), KeyedStream[str, str])
count_by(short.key_by(str.lower), "total").sink("counts")
short.key_by(0).process(keys).sink("keys")
assert_type(lines.key_by("text").distinct(), Stream[Line])

pairs = flow.source("pairs", of=tuple[str, int], fields=("word", "number"))
assert_type(pairs, Stream[tuple[str, int]])
assert_type(pairs.key_by("word"), KeyedStream[Any, tuple[str, int]])
assert_type(pairs.key_by(0).scan(lambda pair: pair[1]), Stream[int])
pairs.key_by("word").distinct(name="words once").key_by("number").distinct().sink("firsts")
pairs.map(lambda pair: pair[1], name="second").sink("numbers")
