"""A run is nothing but its labels: whatever is done to it is done to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import Label
from driftline.engine.wire import runs
from driftline.engine.wire.codec import Columns, labels_to_columns, pack, unpack
from driftline.engine.wire.messages import columns
from driftline.engine.wire.runs import Labels, Run, numbered, select

parts = st.lists(st.integers(0, 4), max_size=3).map(tuple)
numbers = st.lists(st.integers(0, 5), min_size=1, max_size=6)
some_runs = st.builds(Run, parts, numbers, st.lists(st.integers(0, 4), min_size=1).map(tuple))
lists = st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=4).map(tuple), min_size=1)
some_labels: st.SearchStrategy[Labels] = some_runs | lists


def sent(labels: Labels) -> Labels:
    encoded = unpack(pack(runs.to_columns(labels)))
    assert isinstance(encoded, tuple)
    return runs.from_columns_of_labels(columns(encoded))


@given(some_labels)
def test_labels_come_back_and_their_bytes_do_not_tell_a_run_from_a_list(labels: Labels) -> None:
    assert list(sent(labels)) == list(labels)
    assert pack(runs.to_columns(labels)) == pack(labels_to_columns(list(labels)))
    assert pack(runs.to_columns(sent(labels))) == pack(labels_to_columns(list(labels)))


@given(some_labels, st.data())
def test_a_run_is_its_labels(labels: Labels, data: st.DataObject) -> None:
    as_list = list(labels)
    assert len(labels) == len(as_list)
    assert [labels[i] for i in range(len(labels))] == as_list
    chosen = data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels)))
    assert list(select(labels, chosen)) == select(as_list, chosen)
    assert list(numbered(labels, 7)) == numbered(as_list, 7)
    assert runs.in_order(labels) == runs.in_order(as_list)
    found = list(runs.times(labels))
    assert found in (runs.times(as_list), [as_list[0][0]])
    assert set(found) == {label[0] for label in as_list}


def test_roots_and_children_are_runs_when_they_arrive() -> None:
    roots: list[Label] = [(5, 0), (6, 0), (9, 0)]
    assert isinstance(sent(roots), Run)
    assert isinstance(sent(Run((5, 0), range(3))), Run)
    assert not isinstance(sent([(5, 0, 1), (6, 0, 2)]), Run)


@pytest.mark.parametrize(
    "encoded",
    [
        (2, 0b01, (7, (1, 2, 3))),
        (2, 0b01, (7, 3)),
        (-1, 0b01, (7, ())),
        (2, 0b11, (7, 8, (1,))),
        (2, 0b00, ((1, 2), (3,))),
        (2, 0b01, ("a", (1, 2))),
        (2, 0b01, (7, (1, "b"))),
    ],
)
def test_columns_that_are_no_labels_are_refused(encoded: Columns) -> None:
    with pytest.raises(MalformedMessage):
        runs.from_columns_of_labels(encoded)
