"""Peers: a node's messages to the other nodes: frames, and in label order acknowledgements.

The acknowledgement of a stage travels in the last frame that the stage has made for a node, so that
it costs no message of its own; a node without such a frame gets a message. Without label order
nodes need no acknowledgements, and frames leave at once.

Takes: frames that have been made, acknowledgements. Gives: messages for other nodes. Invariant:
frames and acknowledgements leave in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from driftline.deploy.work.assembly import Post
from driftline.deploy.work.leaving import UnsentFrame, to_frame
from driftline.deploy.work.tracking import Cells, Intervals
from driftline.engine.wire.messages import Acknowledge, Frame

NOTHING_NEW = Acknowledge((), (), 0)


class Peers:
    """The other nodes, in label order."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._last: dict[str, UnsentFrame] = {}
        """Node -> the last frame for it, which waits for the acknowledgement of its stage."""

    @property
    def waiting(self) -> bool:
        """Whether a frame waits for an acknowledgement."""
        return bool(self._last)

    def frame(self, to: str, unsent: UnsentFrame) -> Post:
        """A frame has been made for node `to`. Returns messages to send: the frame before it."""
        before = self._last.get(to)
        self._last[to] = unsent
        return [] if before is None else [(to, to_frame(before))]

    def acknowledge(self, cells: Cells, covered: Intervals) -> Post:
        """The messages with this acknowledgement for all nodes, in waiting frames if any."""
        post: Post = []
        for to in self._names:
            unsent = self._last.pop(to, None)
            if unsent is not None:
                post.append((to, to_frame(unsent, cells, covered)))
            elif cells or covered:
                post.append((to, Acknowledge(cells, covered, 0)))
        return post

    def nothing_new(self) -> Post:
        """Empty acknowledgements: they make a lost message before them a gap in the channel."""
        return [(to, NOTHING_NEW) for to in self._names]


class PromptPeers(Peers):
    """The other nodes, without label order. `keep`: see `Assembly.keep`."""

    def __init__(self, names: Iterable[str], keep: Callable[[str, Frame], bool]) -> None:
        super().__init__(names)
        self._keep = keep

    def frame(self, to: str, unsent: UnsentFrame) -> Post:
        frame = to_frame(unsent)
        return [] if self._keep(to, frame) else [(to, frame)]
