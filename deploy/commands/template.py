"""The files of `driftline new`, with `{title}`, `{module}` and `{folder}` to be filled in."""

from __future__ import annotations

FLOW = '''\
"""Counts words: for each word of each record, how often it has come so far."""

from typing import TypedDict

from driftline import Flow, ReducingState


class Line(TypedDict):
    """A record: a line of text."""

    text: str


def words(line: Line) -> list[str]:
    """The words of a record's text."""
    return line["text"].lower().split()


def itself(word: str) -> str:
    """The key: equal words share a state."""
    return word


def add(total: int, added: int) -> int:
    """The new value of the state."""
    return total + added


def count(word: str, total: ReducingState[int]) -> tuple[str, int]:
    """The word, and how often it has come so far."""
    return word, total.add(1)


flow = Flow("{title}")
(
    flow.source("lines", of=Line)
    .flat_map(words)
    .key_by(itself)
    .scan(count, ReducingState("total", add), fields=("word", "count"))
    .sink("counts")
)
'''

TEST = '''\
"""Tests the flow by the reference interpreter, and on nodes of which one is killed."""

from driftline import FlowTest, run_reference

from {module} import flow


def test_words_are_counted_in_the_order_of_the_records() -> None:
    lines = [{{"text": "a B a"}}, {{"text": "b"}}]
    items = list(run_reference(flow, [lines]))
    assert [item.value for item in items] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_no_count_is_lost_when_a_node_is_killed() -> None:
    with FlowTest(flow, nodes=2) as test:
        test.send({{"text": "a b"}})
        test.kill("node-0")
        test.send({{"text": "a"}})
        assert test.outputs("counts") == [("a", 1), ("b", 1), ("a", 2)]
'''

SAMPLE = """\
{"text": "the ship left the harbour"}
{"text": "the harbour was quiet"}
{"text": "a quiet ship"}
"""

RUN = "driftline run {folder}/{module}.py --input {folder}/sample.jsonl --output {folder}/out"
TRY = "python -m pytest {folder}"

README = """\
# {title}

- Run it: `driftline run {module}.py --input sample.jsonl --output out` writes `out/counts-0.jsonl`.
- Test it: `python -m pytest`; under faults: `driftline simulate {module}.py --input sample.jsonl`.
- Print its graph: `driftline graph {module}.py`.
"""
