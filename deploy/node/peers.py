"""What a node says to the other nodes: frames, and in label order what has been worked off.

The acknowledgement of a stage travels in the last frame that the stage has made for a node, so that
it costs no message of its own; to a node without such a frame it goes by itself. Without label
order nodes need no acknowledgements, and frames wait for none.

Invariant: frames and acknowledgements leave in the order in which they were made.
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
        """The frames that wait for the acknowledgement that they are to take with them."""

    @property
    def waiting(self) -> bool:
        """Whether a frame waits."""
        return bool(self._last)

    def frame(self, to: str, unsent: UnsentFrame) -> Post:
        """A frame is made for a node. Returns what may leave: the one before it."""
        before = self._last.get(to)
        self._last[to] = unsent
        return [] if before is None else [(to, to_frame(before))]

    def acknowledge(self, cells: Cells, covered: Intervals) -> Post:
        """What has been worked off; no frame waits any longer."""
        post: Post = []
        for to in self._names:
            unsent = self._last.pop(to, None)
            if unsent is not None:
                post.append((to, to_frame(unsent, cells, covered)))
            elif cells or covered:
                post.append((to, Acknowledge(cells, covered, 0)))
        return post

    def nothing_new(self) -> Post:
        """What shows whether something before it was lost."""
        return [(to, NOTHING_NEW) for to in self._names]


class PromptPeers(Peers):
    """The other nodes without label order. `keep`: whether a frame may not leave yet."""

    def __init__(self, names: Iterable[str], keep: Callable[[str, Frame], bool]) -> None:
        super().__init__(names)
        self._keep = keep

    def frame(self, to: str, unsent: UnsentFrame) -> Post:
        frame = to_frame(unsent)
        return [] if self._keep(to, frame) else [(to, frame)]
