"""Counts words: a flow in ten lines."""

import operator
from typing import TypedDict

from driftline import Flow, ReducingState


class Line(TypedDict):
    """A line of a text file."""

    text: str


def count(word: str, total: ReducingState[int]) -> tuple[str, int]:
    """Return the word and the number of its occurrences so far."""
    return word, total.add(1)


flow = Flow("word count")
(
    flow.source("lines", of=Line)
    .flat_map(lambda line: line["text"].lower().split())
    .key_by(lambda word: word)
    .scan(count, ReducingState("total", operator.add), fields=("word", "count"))
    .sink("counts")
)
