"""Blocks are processed in label order; a time is complete only after its last element."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.deploy.node.input_queue import (
    Block,
    ElementBatch,
    in_label_order,
    min_times_from,
    split_ready,
)
from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import INFINITY, Label
from driftline.engine.operators.steps import BATCH_ELEMENTS_MIN
from driftline.engine.wire.codec import pack_rows
from driftline.engine.wire.label_columns import LabelColumn, times

large = st.integers(BATCH_ELEMENTS_MIN, 2 * BATCH_ELEMENTS_MIN).map(lambda count: [count])
small = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Block]:
    """Draw blocks of two nodes, with large batches of one time and small ones of several times."""
    senders: list[list[ElementBatch]] = [[], []]
    time = 0
    for sizes in draw(st.lists(st.one_of(large, small), min_size=1, max_size=8)):
        sender = senders[draw(st.integers(0, 1))]
        if len(sizes) == 1 and sizes[0] >= BATCH_ELEMENTS_MIN:
            time += 1
            payloads: list[object] = [(time, child) for child in range(sizes[0])]
            sender.append(
                ElementBatch(LabelColumn((time, 0), range(sizes[0])), pack_rows(payloads), None)
            )
            continue
        labels: list[Label] = []
        for size in sizes:
            time += draw(st.integers(1, 2))  # another batch may have a time in between
            labels += [(time, 0, child) for child in range(size)]
        pairs: list[object] = [(label[0], label[2]) for label in labels]
        sender.append(ElementBatch(labels, pack_rows(pairs), None))
        time -= draw(st.integers(0, len(sizes) - 1))
    return [
        Block(0, batches[0].labels[0][0], number, batches)
        for number, batches in enumerate(senders, 1)
        if batches
    ]


def elements(batches: list[ElementBatch]) -> list[tuple[Label, object]]:
    found = [batch.elements() for batch in batches]
    return [pair for labels, values, _ in found for pair in zip(labels, values, strict=True)]


@given(arrivals())
def test_blocks_merge_in_time_order_without_loss(blocks: list[Block]) -> None:
    ordered = in_label_order(blocks)
    arrived = [element for block in blocks for element in elements(block.batches)]
    assert sorted(elements(ordered)) == sorted(arrived)
    found = [label[0] for label, _ in elements(ordered)]
    assert found == sorted(found)


@given(arrivals())
def test_batch_bound_is_the_smallest_remaining_time(blocks: list[Block]) -> None:
    batches = in_label_order(blocks)
    for at, bound in enumerate(min_times_from(batches)):
        assert bound == min(min(times(batch.labels)) for batch in batches[at:])


def test_large_batch_is_not_split_by_overlapping_small_ones() -> None:
    whole = ElementBatch(
        LabelColumn((5, 0), range(BATCH_ELEMENTS_MIN)),
        pack_rows(list(range(BATCH_ELEMENTS_MIN))),
        None,
    )
    across = ElementBatch([(4, 0), (6, 0)], pack_rows(["before", "after"]), None)
    ordered = in_label_order([Block(0, 5, 1, [whole]), Block(0, 4, 2, [across])])
    assert [batch.labels[0][0] for batch in ordered] == [4, 5, 6]
    assert ordered[1] is whole


versions = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=40)
"""(time, whether its element is retracted), in the order of creation."""


@given(versions, st.data())
def test_tombstones_keep_their_order_with_elements_of_one_label(
    made: list[tuple[int, bool]], data: st.DataObject
) -> None:
    sent: list[tuple[Label, object, int]] = []
    for number, (time, taken_back) in enumerate(made):
        sent.append(((time, 0), number, 1))
        if taken_back:
            at = data.draw(st.integers(0, len(sent)))
            sent.insert(max(at, 1 + sent.index(((time, 0), number, 1))), ((time, 0), number, -1))
    waiting: list[Block] = []
    applied: list[tuple[Label, object, int]] = []
    left, complete = list(sent), 0
    while left or waiting:
        count = data.draw(st.integers(1, 6))
        here, left = left[:count], left[count:]
        complete = complete + data.draw(st.integers(0, 1)) if here else INFINITY
        if here:
            labels, values, signs = map(list, zip(*here, strict=True))
            batch = ElementBatch(labels, values, signs if -1 in signs else None)
            waiting.append(Block(0, data.draw(st.integers(0, min(times(labels)))), 1, [batch]))
        now, later = split_ready(waiting, data.draw(st.sampled_from([0, 99])), complete)
        taken = [batch.elements() for batch in in_label_order(now)] if now else []
        found = [
            element
            for labels, values, signs in taken
            for element in zip(labels, values, signs or [1] * len(labels), strict=True)
        ]
        until = data.draw(st.integers(1, max(len(found), 1)))  # other labels get no element
        applied += found[:until]
        rest = [ElementBatch([e[0]], [e[1]], [e[2]]) for e in found[until:]]
        waiting = ([Block(0, min(e[0][0] for e in found[until:]), 1, rest)] if rest else []) + later
    for time in range(10):
        label = (time, 0)
        assert [e for e in applied if e[0] == label] == [e for e in sent if e[0] == label]


def test_payloads_that_do_not_match_their_labels_are_malformed() -> None:
    for payloads in (pack_rows(["only one"]), b"\xc1", b"", b"\x07"):
        with pytest.raises(MalformedMessage):
            ElementBatch([(1, 0), (2, 0)], payloads, None).elements()
