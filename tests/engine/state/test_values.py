"""Stored values are isolated: user functions cannot change them through shared references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from enum import IntEnum, StrEnum
from threading import Thread
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.errors import PayloadError
from driftline.engine.snapshots.merging import read_segment
from driftline.engine.state.changelog import encode_chunk
from driftline.engine.state.managed import (
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
    undo,
)
from driftline.engine.state.plain import Undo, plain_state
from driftline.engine.state.table import StateTable, serialise
from driftline.engine.state.values import (
    Frozen,
    can_stay_unfrozen,
    copy_outputs,
    freeze,
    freeze_arguments,
    freeze_outputs,
    holds,
    is_plain,
    thaw,
    thaw_argument,
    thaw_output,
)
from driftline.engine.wire.codec import pack_rows, round_trip, unpack_rows, why_unencodable


class Number(IntEnum):
    ONE = 1


class Name(StrEnum):
    A = "a"


class Pair(NamedTuple):
    left: object
    right: object


atoms = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False),
    st.text(max_size=3), st.binary(max_size=3),
)  # fmt: skip
plain = st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(plain.filter(lambda key: key == key), inner, max_size=3),
    ),
    max_leaves=8,
)


def spoil(value: object) -> None:
    """Mutate a value wherever that is possible."""
    if isinstance(value, (list, tuple)):
        for inner in value:
            spoil(inner)
    if isinstance(value, list):
        value.append("spoilt")
    if isinstance(value, dict):
        for inner in value.values():
            spoil(inner)
        value["spoilt"] = True


@given(values)
def test_frozen_value_is_not_affected_by_later_mutations(value: object) -> None:
    before = repr(value)
    kept = freeze(value)
    spoil(value)
    assert repr(thaw(kept)) == before
    spoil(thaw(kept))
    assert repr(thaw(kept)) == before


@given(plain)
def test_immutable_value_is_stored_without_a_copy(value: object) -> None:
    assert freeze(value) is value
    assert is_plain(value)


@given(st.lists(values, max_size=5))
def test_kept_arguments_and_outputs_are_isolated_from_mutations(found: list[object]) -> None:
    arrived = [round_trip(value) for value in found]
    before, made = repr(arrived), repr(found)
    kept, outputs = freeze_arguments(arrived), freeze_outputs(found, check_objects=True)
    branch = copy_outputs(found)
    for value in (*arrived, *found):
        spoil(value)
    assert repr([thaw_argument(value) for value in kept]) == before
    assert repr(list(map(thaw_output, outputs))) == made
    assert repr(branch) == made


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (Number.ONE, "1"),
        (Name.A, "'a'"),
        (Pair(1, [2]), "(1, [2])"),
        ((Name.A, 1), "('a', 1)"),
        ([Pair(1, 2)], "[(1, 2)]"),
        ({Name.A: bytearray(b"x")}, "{'a': b'x'}"),
    ],
)
def test_subclass_values_are_stored_as_their_base_type(value: object, kept: str) -> None:
    """The types are those after a recovery, even without one."""
    assert repr(thaw(freeze(value))) == kept


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = (value,)
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({1}, "a value of type set cannot be sent or stored; use"),
        ([1, {"a": {2}}], "at [1]['a'] is of type set"),
        ((1, 2**64), "at [1] is an int of more than 64 bits"),
        ("\ud800", "text with a lone surrogate"),
        ({Number: 1}, "at .key is of type EnumType"),
        (deep(1100), "nested more than 1000 deep"),
        ([deep(150)], ""),
    ],
)
def test_error_names_path_and_type_of_an_unencodable_value(value: object, reason: str) -> None:
    """The error is the same for states and for outputs."""
    with pytest.raises(PayloadError) as kept:
        freeze(value)
    if reason:
        assert reason in str(kept.value)
        with pytest.raises(PayloadError) as sent:
            round_trip(value)
        assert str(sent.value) == str(kept.value) == why_unencodable(value)


# States ---------------------------------------------------------------------------------------


def merge(one: object, other: object) -> object:
    """Fold two values; may mutate the old value."""
    if isinstance(one, list):
        one.append(other)
        return one
    return [one, other]


DECLARED: tuple[State, ...] = (
    ValueState[object]("value"),
    ReducingState[object]("fold", merge),
    ListState[object]("list"),
    MapState[object, object]("map"),
)

slots = st.sampled_from(["a", "b", (1, "c"), 2])
OPERATIONS: list[Callable[..., object]] = [
    lambda s, slot, value: s[0].set(value),
    lambda s, slot, value: s[0].get("none"),
    lambda s, slot, value: s[0].clear(),
    lambda s, slot, value: s[1].add(value),
    lambda s, slot, value: s[1].get(),
    lambda s, slot, value: s[2].append(value),
    lambda s, slot, value: s[2].pop() if s[2] else None,
    lambda s, slot, value: s[2].pop(0) if s[2] else None,
    lambda s, slot, value: s[2].__delitem__(slice(None, -2)),
    lambda s, slot, value: s[2].__setitem__(0, value) if s[2] else None,
    lambda s, slot, value: s[2].clear(),
    lambda s, slot, value: list(s[2]),
    lambda s, slot, value: s[3].__setitem__(slot, value),
    lambda s, slot, value: s[3].pop(slot, "none"),
    lambda s, slot, value: s[3].setdefault(slot, value),
    lambda s, slot, value: s[3].get(slot),
    lambda s, slot, value: s[3].update({slot: value, "z": 1}),
    lambda s, slot, value: s[3].popitem() if s[3] else None,
    lambda s, slot, value: s[3].items(),
    lambda s, slot, value: s[3].clear(),
]
operations = st.lists(st.tuples(st.sampled_from(OPERATIONS), slots, values), max_size=12)


def look(states: tuple[object, ...]) -> str:
    value, fold, many, mapped = states
    found = value.get("none"), fold.get("none"), list(many), mapped.items()  # type: ignore[attr-defined, call-overload]
    return repr(found)


@given(before=operations, after=operations)
@settings(max_examples=80)
def test_serialised_states_are_those_of_the_reference_and_can_be_undone(
    before: list[tuple[Callable[..., object], object, object]],
    after: list[tuple[Callable[..., object], object, object]],
) -> None:
    """Two independent implementations agree, although values put and got are mutated at once."""
    table = StateTable(DECLARED, [])
    serialise(table)
    states = table.states("key")
    undos: Undo = Undo()
    plain_states = tuple(plain_state(declared, undos) for declared in DECLARED)

    def apply(found: list[tuple[Callable[..., object], object, object]]) -> None:
        for operation, slot, value in found:
            one, other = deepcopy(value), deepcopy(value)
            results = operation(states, slot, one), operation(plain_states, slot, other)
            assert repr(results[0]) == repr(results[1])
            for spoilt in (one, other, *results):
                spoil(spoilt)
            assert look(states) == look(plain_states)

    apply(before)
    mark, shown = len(table.undo_log), look(states)
    undos.clear()
    apply(after)
    undo(table.undo_log[mark:])
    for take_back in reversed(undos):
        take_back()
    assert look(states) == look(plain_states) == shown


def test_copy_of_a_state_is_a_plain_value() -> None:
    """A copy that was a state would put its changes into the snapshots of the original."""
    one_value, one_list = ValueState[object]("value"), ListState[object]("list")
    declared = one_value, one_list, MapState[object, object]("map")
    on_nodes: Sequence[Any] = StateTable(declared, []).states("key")
    by_reference: Sequence[Any] = [plain_state(each, Undo()) for each in declared]
    for value, items, mapping in (on_nodes, by_reference):
        items.append([1])
        mapping["a"] = [1]
        for copied in copy(items), deepcopy(items), copy(mapping), deepcopy(mapping):
            assert (type(copied), copied) in ((list, [[1]]), (dict, {"a": [1]}))
        for how in copy, deepcopy:
            with pytest.raises(TypeError, match="cannot be copied"):
                how(value)


huge = st.integers(2**62, 2**65) | st.integers(-(2**65), -(2**62)) | st.just("\ud800")
perhaps = st.recursive(
    atoms | huge | st.sampled_from([Number.ONE, Name.A, bytearray(b"x"), float("nan")]),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.lists(inner, max_size=2),
    max_leaves=6,
)


def may_be_stored(value: object) -> bool:
    try:
        return freeze(value) is value
    except PayloadError:
        return False


@given(st.lists(perhaps, max_size=4))
def test_only_storable_immutable_values_stay_unfrozen(found: list[object]) -> None:
    slots = range(len(found))
    assert can_stay_unfrozen(slots, found) == all(map(may_be_stored, found))


def test_cyclic_value_raises_payload_error() -> None:
    """For example, children that refer to their parent: encoding the cycle raises PayloadError."""
    twice: list[object] = []
    twice += [twice, (twice, 1)]
    parent: dict[str, object] = {"children": []}
    parent["children"] = [{"parent": parent}]
    for value in (twice, parent):
        assert len(freeze_outputs([value], check_objects=True)) == 1
        assert not holds(MapState, [value])
        for put in (round_trip, freeze):
            with pytest.raises(PayloadError, match="nested more than 1000 deep"):
                put(value)


class InterruptedEncoding(Frozen):
    """Value during whose encoding another thread encodes a chunk, too."""

    def __init__(self) -> None:
        pass

    @property
    def data(self) -> bytes:  # type: ignore[override]
        thread = Thread(target=encode_chunk, args=("other", "state", [("key", 1, Frozen(b"0"))]))
        thread.start()
        thread.join()
        return b"1"


def test_chunk_is_complete_if_another_thread_encodes_one_at_the_same_time() -> None:
    """The loop encodes a snapshot, while a thread merges the parts of earlier ones."""
    rows: list[tuple[object, ...]] = [("key", 1, InterruptedEncoding()), ("key", 2)]
    chunk = encode_chunk("operator", "state", rows)
    assert [*read_segment(chunk)] == [("operator", "state", [("key", 1, Frozen(b"1")), rows[1]])]


# The wire ---------------------------------------------------------------------------------------

odd = st.one_of(
    st.sampled_from([Number.ONE, 1, True, 1.0, Name.A, "a", None, b"x", bytearray(b"x")]),
    st.lists(st.sampled_from([Name.A, "a", Number.ONE, 1]), max_size=2),
)
rows = st.one_of(
    odd,
    st.lists(odd, min_size=2, max_size=2),
    st.tuples(odd, odd),
    st.builds(Pair, odd, odd),
)


@given(st.lists(rows, max_size=6) | st.lists(st.builds(Pair, odd, odd) | st.tuples(odd, odd)))
def test_reencoded_rows_have_the_same_bytes(
    found: list[object],
) -> None:
    """Checksums depend on this, since late outputs are encoded from decoded ones."""
    packed = pack_rows(found)
    assert pack_rows(unpack_rows(packed)) == packed
