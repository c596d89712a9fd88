"""Labels are one total order; a key's group and owner depend on nothing but the key."""

import subprocess
import sys
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.errors import PayloadError
from driftline.engine.keygroups import (
    GROUPS,
    GroupCache,
    Owners,
    group_of,
    owned_by,
    owner,
    root_group,
)
from driftline.engine.labels import INFINITY, Label, child
from driftline.engine.texts import time_in_words
from driftline.engine.wire.codec import travelled
from tests.engine.state.states import frozen

labels = st.lists(st.integers(0, 5), min_size=2, max_size=5).map(tuple)


# Labels ---------------------------------------------------------------------------------------


def test_a_time_is_told_as_a_record_or_as_a_moment() -> None:
    moment = datetime(2026, 11, 22, 14, 3, 25, 123456)
    assert time_in_words(round(moment.timestamp() * 1_000_000)) == "2026-11-22 14:03:25.123456"
    assert [time_in_words(time) for time in (0, 1, 10**9, INFINITY - 1, INFINITY)] == [
        "the beginning", "record 1", "record 1000000000", "the end", "the end",
    ]  # fmt: skip


@given(labels, labels, st.integers(0, 5), st.integers(0, 5))
def test_children_are_between_their_parent_and_what_comes_after_it(
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
    if len(one) == len(other):  # on one edge all labels of a root are of one length, or nested
        assert (child(one, a) == child(other, b)) == ((one, a) == (other, b))


# Key groups -----------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(1, 300))
def test_every_group_has_one_owner_and_owners_have_contiguous_groups(
    nodes: int, groups: int
) -> None:
    owned = [owned_by(node, nodes, groups) for node in range(nodes)]
    assert [group for own in owned for group in own] == list(range(groups))
    assert all(group in owned[owner(group, nodes, groups)] for group in range(groups))
    if groups >= nodes:
        sizes = set(map(len, owned))
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1


@given(frozen, st.integers(1, 300))
def test_every_key_has_a_group_that_is_the_same_on_the_other_side_of_a_shuffle(
    key: object, groups: int
) -> None:
    group = group_of(key, groups)
    assert 0 <= group < groups
    assert group_of(travelled(key), groups) == group
    assert group_of([*key] if isinstance(key, tuple) else key, groups) == group


def test_groups_are_the_same_in_every_process_and_version() -> None:
    keys = ["a", "слово", 1, -7, 2.5, None, True, b"x", ("a", 1), 2**63]
    found = [group_of(key) for key in keys]
    assert found == [116, 123, 82, 11, 0, 36, 82, 23, 114, 105]
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


@given(st.lists(frozen, max_size=20) | st.lists(st.text(max_size=8), max_size=20))
def test_caches_and_owners_say_what_the_functions_say(keys: list[object]) -> None:
    owners = Owners(3)
    assert owners.of(keys) == [owner(group_of(key), 3) for key in keys]
    groups = GroupCache()
    for _ in range(2):
        assert [groups[key] for key in keys] == list(map(group_of, keys))


def test_keys_that_are_equal_have_one_owner() -> None:
    """Two nodes have to send an element to the same owner, whatever they have seen before."""
    owners = Owners(4)
    assert owners.of(list(range(10))) == owners.of(list(map(float, range(10))))
    assert owners.of([0, 1, ("a", 1)]) == owners.of([False, True, ("a", 1.0)])


@pytest.mark.parametrize("bad", ["\ud800", object()])
def test_an_owner_of_a_key_that_cannot_travel_is_an_error(bad: object) -> None:
    with pytest.raises(PayloadError, match="cannot travel"):
        Owners(2).of(["good", bad])
