"""A takeover: a new master goes on with the incarnation that it finds, and nothing stands still.

Takes: `Hello` and `Following` of all members. Gives: whether the incarnation can go on, and what
each node was asked for by the master before. Invariant: it goes on only if every member is in it,
and every node has its state; otherwise a recovery begins.

In label order each node tracks the progress of all (`acker.gathered`), so the new master hears of
it what the old one knew; nodes, fronts and consumers never wait for a master. What the old one had
decided is in the registry, and what it had collected of a snapshot is given up.

The steps: all members have said hello; the registry has the epoch of this master, so the one before
can decide nothing any more; all members have answered `Lead`, so they take nothing any more of what
the one before has sent.
"""

from __future__ import annotations

from collections.abc import Collection

from driftline.engine.wire.messages import Following, Hello


class Takeover:
    """The takeover of an incarnation by one master."""

    def __init__(self, incarnation: int, nodes: Collection[str], members: Collection[str]) -> None:
        self._incarnation = incarnation
        self._nodes = nodes
        self._members = members
        self._fits: dict[str, bool] = {}
        self._answers: dict[str, Following] = {}

    def hello(self, name: str, message: Hello) -> None:
        """A member is present."""
        ready = bool(message.ready) or name not in self._nodes
        self._fits[name] = message.incarnation == self._incarnation and ready

    def answer(self, name: str, message: Following) -> None:
        """A member knows that this master leads."""
        self._answers[name] = message

    @property
    def possible(self) -> bool:
        """Whether all members that were heard are in the incarnation."""
        return all(self._fits.values())

    @property
    def missing(self) -> list[str]:
        """The members that have not answered yet."""
        return [name for name in self._members if name not in self._answers]

    @property
    def asked(self) -> int:
        """The number of the newest snapshot that a node was asked for."""
        return max(self._answers[name].asked for name in self._nodes)

    @property
    def at_work(self) -> set[str]:
        """The nodes that have not answered the snapshot that they were asked for."""
        answers = self._answers
        return {name for name in self._nodes if answers[name].answered < answers[name].asked}
