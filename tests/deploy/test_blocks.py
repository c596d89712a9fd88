"""What waits is worked off in label order, and said to be over no sooner than it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.blocks import Block, Piece, bounds, in_order
from engine.codec import pack_rows
from engine.errors import MalformedMessage
from engine.labels import Label
from engine.operators import MANY
from engine.runs import Run, times

large = st.integers(MANY, 2 * MANY).map(lambda count: [count])
small = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Block]:
    """Blocks of two nodes: each has large pieces of one time, and small ones of several."""
    senders: list[list[Piece]] = [[], []]
    time = 0
    for sizes in draw(st.lists(st.one_of(large, small), min_size=1, max_size=8)):
        sender = senders[draw(st.integers(0, 1))]
        if len(sizes) == 1 and sizes[0] >= MANY:
            time += 1
            payloads: list[object] = [(time, child) for child in range(sizes[0])]
            sender.append(Piece(Run((time, 0), range(sizes[0])), pack_rows(payloads), None))
            continue
        labels: list[Label] = []
        for size in sizes:
            time += draw(st.integers(1, 2))  # another piece may have a time in between
            labels += [(time, 0, child) for child in range(size)]
        pairs: list[object] = [(label[0], label[2]) for label in labels]
        sender.append(Piece(labels, pack_rows(pairs), None))
        time -= draw(st.integers(0, len(sizes) - 1))
    return [
        Block(0, pieces[0].labels[0][0], number, pieces) for number, pieces in enumerate(senders, 1)
        if pieces
    ]  # fmt: skip


def elements(pieces: list[Piece]) -> list[tuple[Label, object]]:
    found = [piece.elements() for piece in pieces]
    return [pair for labels, values, _ in found for pair in zip(labels, values, strict=True)]


@given(arrivals())
def test_nothing_is_lost_and_no_time_comes_after_a_later_one(blocks: list[Block]) -> None:
    ordered = in_order(blocks)
    arrived = [element for block in blocks for element in elements(block.pieces)]
    assert sorted(elements(ordered)) == sorted(arrived)
    found = [label[0] for label, _ in elements(ordered)]
    assert found == sorted(found)


@given(arrivals())
def test_no_element_comes_after_its_bound(blocks: list[Block]) -> None:
    pieces = in_order(blocks)
    for at, bound in enumerate(bounds(pieces)):
        assert bound == min(min(times(piece.labels)) for piece in pieces[at:])


def test_a_large_piece_stays_whole_though_small_ones_overlap() -> None:
    whole = Piece(Run((5, 0), range(MANY)), pack_rows(list(range(MANY))), None)
    across = Piece([(4, 0), (6, 0)], pack_rows(["before", "after"]), None)
    ordered = in_order([Block(0, 5, 1, [whole]), Block(0, 4, 2, [across])])
    assert [piece.labels[0][0] for piece in ordered] == [4, 5, 6]
    assert ordered[1] is whole


def test_tombstones_keep_the_order_of_arrival() -> None:
    later = Piece([(7, 0)], pack_rows(["x"]), [-1])
    earlier = Piece([(3, 0)], pack_rows(["y"]), None)
    assert in_order([Block(0, 7, 1, [later]), Block(0, 3, 2, [earlier])]) == [later, earlier]
    assert bounds([later, earlier]) == [3, 3]


def test_payloads_that_do_not_fit_their_labels_are_malformed() -> None:
    for payloads in (pack_rows(["only one"]), b"\xc1", b"", b"\x07"):
        with pytest.raises(MalformedMessage):
            Piece([(1, 0), (2, 0)], payloads, None).elements()
