"""Frames and acknowledgements leave as few messages, in the order in which they were made."""

from driftline.deploy.node.blocks import Batch, UnsentFrame, to_frame
from driftline.deploy.node.stages import Peers
from driftline.engine.wire.codec import pack_rows
from driftline.engine.wire.messages import Acknowledge, Frame

CELLS, COVERED = ((1, 4, 99),), ((0, 4, 5),)


def unsent(port: int) -> UnsentFrame:
    return 0, port, 4, 10 + port, [Batch([(4, 0, port)], pack_rows([port]), None)]


def test_the_acknowledgement_travels_in_the_last_frame_for_each_node() -> None:
    peers = Peers(["node-1", "node-2"])
    assert peers.frame("node-1", unsent(1)) == []
    assert peers.frame("node-1", unsent(2)) == [("node-1", to_frame(unsent(1)))]
    assert peers.acknowledge(CELLS, COVERED) == [
        ("node-1", to_frame(unsent(2), CELLS, COVERED)),
        ("node-2", Acknowledge(CELLS, COVERED, 0)),
    ]
    assert peers.acknowledge((), ()) == [], "no frame waits any longer"


def test_a_frame_leaves_also_without_an_acknowledgement() -> None:
    peers = Peers(["node-1", "node-2"])
    peers.frame("node-2", unsent(1))
    assert peers.acknowledge((), ()) == [("node-2", to_frame(unsent(1)))]


def test_without_label_order_a_frame_leaves_at_once_unless_it_is_kept() -> None:
    kept: list[tuple[str, Frame]] = []

    def keep(to: str, frame: Frame) -> bool:
        kept.append((to, frame))
        return to == "node-2"

    peers = Peers(["node-1", "node-2"], keep)
    assert peers.frame("node-1", unsent(1)) == [("node-1", to_frame(unsent(1)))]
    assert peers.frame("node-2", unsent(2)) == []
    assert kept == [("node-1", to_frame(unsent(1))), ("node-2", to_frame(unsent(2)))]
    assert not peers.waiting, "for an acknowledgement"
    assert peers.acknowledge((), ()) == []
