"""Label columns: every operation on a column equals the operation on the list of its labels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import Label
from driftline.engine.wire import label_columns
from driftline.engine.wire.codec import Columns, encode_rows, pack, unpack
from driftline.engine.wire.label_columns import LabelColumn, Labels, child_labels, select

parts = st.lists(st.integers(0, 4), max_size=3).map(tuple)
numbers = st.lists(st.integers(0, 5), min_size=1, max_size=6)
some_runs = st.builds(
    LabelColumn, parts, numbers, st.lists(st.integers(0, 4), min_size=1).map(tuple)
)
lists = st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=4).map(tuple), min_size=1)
some_labels: st.SearchStrategy[Labels] = some_runs | lists


def sent(labels: Labels) -> Labels:
    return label_columns.decode_labels(unpack(pack(label_columns.encode_labels(labels))))


@given(some_labels)
def test_labels_round_trip_and_runs_and_lists_have_the_same_bytes(labels: Labels) -> None:
    assert list(sent(labels)) == list(labels)
    as_list = pack(label_columns.encode_labels(list(labels)))
    assert as_list == pack(encode_rows(list(labels)))
    assert as_list == pack(label_columns.encode_labels(labels))
    assert as_list == pack(label_columns.encode_labels(sent(labels)))


@given(some_labels, st.data())
def test_label_column_behaves_like_the_list_of_its_labels(
    labels: Labels, data: st.DataObject
) -> None:
    as_list = list(labels)
    assert len(labels) == len(as_list)
    assert [labels[i] for i in range(len(labels))] == as_list
    chosen = data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels)))
    assert list(select(labels, chosen)) == select(as_list, chosen)
    assert list(child_labels(labels, 7)) == child_labels(as_list, 7)
    assert label_columns.is_sorted(labels) == label_columns.is_sorted(as_list)
    found = list(label_columns.times(labels))
    assert found in (label_columns.times(as_list), [as_list[0][0]])
    assert set(found) == {label[0] for label in as_list}


def test_decoded_roots_and_children_are_label_columns() -> None:
    roots: list[Label] = [(5, 0), (6, 0), (9, 0)]
    assert isinstance(sent(roots), LabelColumn)
    assert isinstance(sent(LabelColumn((5, 0), range(3))), LabelColumn)
    assert not isinstance(sent([(5, 0, 1), (6, 0, 2)]), LabelColumn)


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
def test_columns_without_valid_labels_are_rejected(encoded: Columns) -> None:
    with pytest.raises(MalformedMessage):
        label_columns.decode_labels(encoded)
