"""Accepted inputs of `run`, and errors for others."""

from __future__ import annotations

import bz2
import json
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

import pytest

from driftline import Flow, FlowError, InputError, run
from driftline.api import inputs as inputs_module
from driftline.api.inputs import UNDELIVERED_MAX, Input, Inputs
from driftline.engine.sources import ListSource, QueueSource

RECORDS = [{"id": f"r{i}", "n": i} for i in range(30)]


def echo(*sources: str) -> Flow:
    """Return a flow that passes every record on, from one or several sources."""
    flow = Flow("echo")
    first, *others = [flow.source(name) for name in sources or ("records",)]
    (first.union(*others) if others else first).sink()
    return flow


def values(flow: Flow, inputs: Inputs) -> list[object]:
    return [item.value for item in run(flow, inputs)]


def test_every_kind_of_input_is_read_completely(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    packed = tmp_path / "records.jsonl.bz2"
    packed.write_bytes(bz2.compress(path.read_bytes()))
    kinds: list[Callable[[], Input]] = [
        lambda: RECORDS,
        lambda: tuple(RECORDS),
        lambda: iter(RECORDS),
        lambda: (record for record in RECORDS),
        lambda: dict(enumerate(RECORDS)).values(),
        lambda: path,
        lambda: str(path),
        lambda: packed,
        lambda: ListSource(RECORDS, "of mine"),
    ]
    for make_input in kinds:
        assert values(echo(), [make_input()]) == RECORDS
        assert values(echo(), {"records": make_input()}) == RECORDS


def test_inputs_by_name_need_not_be_in_the_order_of_the_sources() -> None:
    flow = echo("left", "right")
    assert values(flow, {"right": ["b", "d"], "left": iter(["a", "c"])}) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"left": []}, "no input for right: flow 'echo' has the sources left, right"),
        (
            {"left": [], "right": [], "up": []},
            "an input for 'up', which is not a source: flow 'echo'",
        ),
        ([[]], "has the sources left, right, but got 1 input"),
        ([{"id": 1}, {"id": 2}, {"id": 3}], "a list of records is one input: give [records]"),
        ("records.jsonl", "inputs are a str: give one input for each source"),
        (["a", "b"], "source 'left': a: there is no such file. A text is taken for"),
        ([[], b"abc"], "source 'right': a bytes is not an input"),
        ([[], {1, 2}], "source 'right': a set has no order"),
        (
            [[], ListSource],
            "source 'right': ListSource is a class; give an object",
        ),
        ([[], QueueSource()], "source 'right': a live source does not end by itself"),
        ([[], "tcp://*:5555"], "tcp://*:5555 is an address; only the command"),
    ],
)
def test_invalid_inputs_are_rejected_at_the_call(inputs: Inputs, message: str) -> None:
    with pytest.raises(FlowError) as error:
        run(echo("left", "right"), inputs)
    assert message in str(error.value)


def test_unreadable_record_is_named(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('{"id": 1}\n{"id": 2}\nno json\n')
    with pytest.raises(InputError) as error:
        list(run(echo(), [file]))
    assert (error.value.file, error.value.record) == ("some.jsonl", 3)


@pytest.mark.parametrize("iterate", [list, iter])
def test_unencodable_record_is_named(iterate: Callable[[list[object]], object]) -> None:
    with pytest.raises(InputError, match="source 'records', record 2: a value of type object"):
        list(run(echo(), {"records": iterate(["a", object(), "c"])}))  # type: ignore[dict-item]


# Iterators are lazy -----------------------------------------------------------------------------


class CountedIterator(Iterator[int]):
    """Iterator that counts its calls."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self.count = 0
        self._numbers = numbers

    def __next__(self) -> int:
        number = next(self._numbers)
        self.count += 1
        return number


@pytest.mark.parametrize("nodes", [1, 3])
def test_endless_iterator_is_read_only_a_little_ahead(nodes: int) -> None:
    asked = CountedIterator(count())
    ahead = []
    for item in islice(run(echo(), [asked], nodes=nodes), 500):
        assert item.value == item.label[0] - 1
        ahead.append(asked.count - item.label[0])
    assert max(ahead) < UNDELIVERED_MAX


def test_slow_iterator_is_not_read_while_outputs_are_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inputs_module, "SLOW_AFTER_S", -1.0)  # everything takes longer than that
    left, right = CountedIterator(iter(range(20))), CountedIterator(iter(range(30)))
    for item in run(echo("left", "right"), [left, right], nodes=2):
        assert max(left.count, right.count) == item.label[0]
    assert (left.count, right.count) == (20, 30)
