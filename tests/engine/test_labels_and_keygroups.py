"""Labels form a total order; a key's group and owner depend only on the key."""

import subprocess
import sys
from datetime import datetime
from http import HTTPStatus
from typing import NamedTuple

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driftline.engine.errors import PayloadError
from driftline.engine.keygroups import (
    GROUPS,
    GroupCache,
    Owners,
    exact_key,
    exact_keys,
    group_of,
    owned_groups,
    owner,
    plain_key,
    root_group,
)
from driftline.engine.labels import INFINITY, Label, child
from driftline.engine.texts import format_time
from driftline.engine.wire.codec import pack, round_trip
from tests.engine.state.states import frozen

keys = frozen.filter(lambda key: "nan" not in repr(key))
"""Strategy for keys: NaN is not a key."""
labels = st.lists(st.integers(0, 5), min_size=2, max_size=5).map(tuple)


# Labels ---------------------------------------------------------------------------------------


def test_format_time_shows_a_record_number_or_a_timestamp() -> None:
    moment = datetime(2026, 11, 22, 14, 3, 25, 123456)
    assert format_time(round(moment.timestamp() * 1_000_000)) == "2026-11-22 14:03:25.123456"
    assert [format_time(time) for time in (0, 1, 10**9, INFINITY - 1, INFINITY)] == [
        "the beginning", "record 1", "record 1000000000", "the end", "the end",
    ]  # fmt: skip


@given(labels, labels, st.integers(0, 5), st.integers(0, 5))
def test_child_labels_sort_between_their_parent_and_the_next_label(
    one: Label, other: Label, a: int, b: int
) -> None:
    assert one < child(one, a)
    assert (child(one, a) < child(one, b)) == (a < b)
    if one < other and other[: len(one)] != one:
        assert child(one, a) < other


@given(labels, labels, st.integers(0, 5), st.integers(0, 5))
def test_children_of_different_elements_never_share_a_label(
    one: Label, other: Label, a: int, b: int
) -> None:
    if len(one) == len(other):  # on one edge, labels of a root have one length, or are nested
        assert (child(one, a) == child(other, b)) == ((one, a) == (other, b))


# Key groups -----------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(1, 300))
def test_every_group_has_one_owner_and_owners_have_contiguous_groups(
    nodes: int, groups: int
) -> None:
    owned = [owned_groups(node, nodes, groups) for node in range(nodes)]
    assert [group for own in owned for group in own] == list(range(groups))
    assert all(group in owned[owner(group, nodes, groups)] for group in range(groups))
    if groups >= nodes:
        sizes = set(map(len, owned))
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1


@given(frozen, st.integers(1, 300))
def test_key_group_is_unchanged_by_a_shuffle(key: object, groups: int) -> None:
    group = group_of(key, groups)
    assert 0 <= group < groups
    assert group_of(round_trip(key), groups) == group
    assert group_of(exact_key(key), groups) == group


def test_groups_are_the_same_in_every_process_and_version() -> None:
    keys = ["a", "слово", 1, -7, 2.5, None, True, b"x", ("a", 1), 2**63]
    found = [group_of(key) for key in keys]
    assert found == [116, 123, 82, 11, 0, 36, 104, 23, 114, 105]
    program = (
        f"from driftline.engine.keygroups import group_of; print([group_of(k) for k in {keys!r}])"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"{found}\n"


def test_keys_of_every_kind_are_spread_evenly() -> None:
    for keys in (map("word-{}".format, range(12_800)), range(12_800), enumerate(range(12_800))):
        counts = [0] * GROUPS
        for key in keys:
            counts[group_of(key)] += 1
        assert min(counts) > 40
        assert max(counts) < 200


@given(st.integers(0, 2**50), st.integers(0, 5), st.sampled_from([1, 2, 3, 8]))
def test_consecutive_roots_are_spread_over_all_nodes(start: int, front: int, nodes: int) -> None:
    counts = [0] * nodes
    for time in range(start, start + 400):
        counts[owner(root_group(time, front), nodes)] += 1
    assert min(counts) > 200 / nodes


# Many keys at once ----------------------------------------------------------------------------


@given(st.lists(keys, max_size=20) | st.lists(st.text(max_size=8), max_size=20))
def test_group_cache_and_owners_match_the_functions(keys: list[object]) -> None:
    owners = Owners(3)
    assert owners.owners_of(keys) == [owner(group_of(key), 3) for key in keys]
    groups = GroupCache()
    for _ in range(2):
        assert [groups[key] for key in exact_keys(keys)] == list(map(group_of, keys))


@given(keys, keys)
@example(5, 5.0)
@example(1, True)
@example(0.0, -0.0)
@example((1, ("a", 1)), (1, ("a", True)))
@example("a", b"a")
def test_keys_are_the_same_only_with_the_same_wire_form(one: object, other: object) -> None:
    exact_one, exact_other = exact_keys([one, other])
    assert (exact_one == exact_other) == (pack(one) == pack(other))
    assert (len({exact_one, exact_other}) == 1) == (pack(one) == pack(other))
    assert repr(plain_key(exact_one)) == repr(one)
    assert Owners(4, 5).owners_of([exact_one, exact_other]) == Owners(4, 5).owners_of([one, other])


class Word(str):
    """A subclass of str."""


class Pair(NamedTuple):
    one: object
    other: object


def test_a_key_has_the_types_that_the_wire_format_preserves() -> None:
    found = exact_keys([Word("a"), HTTPStatus.OK, Pair(1, HTTPStatus.OK), Pair(1.5, Word("b"))])
    assert repr(list(map(plain_key, found))) == "['a', 200, (1, 200), (1.5, 'b')]"
    assert found[:3] == ["a", 200, (1, 200)]
    assert exact_keys(["a", 5, b"", None, ("a", (5,))]) == ["a", 5, b"", None, ("a", (5,))]


HELP = "a key is None, bool, int, float, str, bytes or a tuple of these"


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("\ud800", "cannot be sent"),
        (object(), f"type object is not a key: {HELP}"),
        ([1], f"type list is not a key: {HELP}"),
        (("a", {}), f"type dict is not a key: {HELP}"),
        (msgpack.ExtType(1, b""), f"type ExtType is not a key: {HELP}"),
        (float("nan"), "NaN is not a key"),
        (("a", (float("nan"),)), "NaN is not a key"),
    ],
)
def test_owner_of_an_invalid_key_is_an_error(bad: object, problem: str) -> None:
    with pytest.raises(PayloadError, match=problem):
        Owners(2).owners_of(["good", bad])
