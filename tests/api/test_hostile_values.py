"""Values whose methods raise: the function fails, with the same error as in the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import msgpack
import pytest

from driftline import Flow, FunctionFailed, Stream, ValueState, run, run_reference
from driftline.engine.operators.context import dead_letter_fields


def gone(*_: object) -> NoReturn:
    raise KeyError("the row is gone")


def ended(*_: object) -> NoReturn:
    raise SystemExit(3)


class LazyRow(dict[str, int]):
    items = gone


class EndedRow(dict[str, int]):
    items = ended


class UnprintableValue(Exception):
    __str__ = __repr__ = gone


class MuteRow(dict[str, int]):
    def items(self) -> NoReturn:
        raise UnprintableValue


class Unhashed(list[int]):
    __eq__ = __len__ = __iter__ = gone

    def __hash__(self) -> NoReturn:  # type: ignore[override]  # a list has none
        raise KeyError


class OddText(str):
    __hash__ = __eq__ = gone
    __str__ = __repr__ = __len__ = gone

    __slots__ = ()


class OddNumber(int):
    __hash__ = __eq__ = __le__ = __ge__ = gone

    __slots__ = ()


MAKERS: dict[str, Callable[[], object]] = {
    "a row": lambda: LazyRow(a=1),
    "a row that ends": lambda: EndedRow(a=1),
    "a mute exception": lambda: MuteRow(a=1),
    "no hash": lambda: Unhashed([1]),
    "a text": lambda: OddText("odd"),
    "a number": lambda: OddNumber(2**70),
}


def pairs(records: Stream[int]) -> Stream[tuple[int, object]]:
    return records.map(lambda record: (record, "even"), name="pair")


def _flow(where: str, made: Callable[[], object]) -> Flow:
    def odd(record: int) -> tuple[int, object]:
        return (record, made()) if record == 2 else (record, "even")

    def bare(record: int) -> object:
        return made() if record == 2 else (record, "even")

    def last(element: tuple[int, object], seen: ValueState[object]) -> tuple[object, ...]:
        before = seen.get()
        seen.set(element[0])
        return element[0], made() if element[0] == 2 else "even", before

    def put(element: tuple[int, object], seen: ValueState[object]) -> object:
        seen.set(made() if element[0] == 2 else element[0])
        return element

    flow = Flow("hostile")
    records = flow.source("in")
    if where == "sink":
        records.map(odd, name="odd").sink()
    elif where == "sink, bare":
        records.map(bare, name="odd", fields=("number", "kind")).sink()
    elif where == "key":
        records.map(odd, name="odd").key_by(0).scan(
            last, ValueState[object]("seen"), name="last"
        ).sink()
    elif where == "key function":
        records.key_by(bare).scan(lambda record: record, name="as it is").sink()
    elif where == "next function":
        records.map(odd, name="odd").map(lambda pair: pair[0], name="first").sink()
    elif where == "keyed":
        scanned = pairs(records).key_by(0).scan(last, ValueState[object]("seen"), name="last")
        scanned.map(lambda made: made[0], name="first").sink()
    else:
        pairs(records).key_by(0).scan(put, ValueState[object]("seen"), name="put").sink()
    return flow


PLACES = "sink", "sink, bare", "key", "key function", "next function", "keyed", "state"


@pytest.mark.parametrize("kind", MAKERS)
def test_exceptions_of_hostile_values_are_failures_as_in_the_reference(kind: str) -> None:
    for where in PLACES:
        flow = _flow(where, MAKERS[kind])
        wanted = list(run_reference(flow, [[1, 2, 3]], dead_letters=True))
        found = list(run(flow, [[1, 2, 3]], nodes=2, dead_letters=True))
        assert found == wanted, where
        assert {1, 3} <= {item.label[0] for item in wanted if item.sink >= 0}, where


ODD: dict[str, Callable[[], object]] = {
    "an extension": lambda: msgpack.ExtType(2, b"x"),
    "extensions in a list": lambda: [msgpack.ExtType(2, b"\x90"), (msgpack.ExtType(1, b""), 1)],
    "a timestamp": lambda: msgpack.Timestamp(1, 2),
    "a list": lambda: [1, {"a": 2}],
}


@pytest.mark.parametrize("kind", ODD)
def test_msgpack_extension_values_are_valid_values_but_invalid_keys(kind: str) -> None:
    for where in PLACES:
        flow = _flow(where, ODD[kind])
        wanted = list(run_reference(flow, [[1, 2, 3]], dead_letters=True))
        found = list(run(flow, [[1, 2, 3]], nodes=2, dead_letters=True))
        assert repr(found) == repr(wanted), where
        failed = [dead_letter_fields(item.value) for item in wanted if item.sink < 0]
        assert len(failed) == (where == "key function" or (where, kind) == BARE), where
        if where == "key function":
            assert "a key is None, bool, int, float, str, bytes or a" in str(failed[0]["error"])
            assert failed[0]["operator"] == "key of as it is"


BARE = "sink, bare", "a timestamp"
"""It is not a sequence of the declared fields."""


@pytest.mark.parametrize("where", ["sink", "key"])
def test_without_dead_letters_the_error_names_operator_label_and_exception(where: str) -> None:
    flow = _flow(where, MAKERS["a row"])
    texts = []
    for call in (run_reference, run):
        with pytest.raises(FunctionFailed) as error:
            list(call(flow, [[1, 2, 3]]))
        texts.append(str(error.value))
    assert texts[0] == texts[1]
    for part in ("'odd'", "label [2, 0]", "reading it raises KeyError: 'the row is gone'"):
        assert part in texts[0]
