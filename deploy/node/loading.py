"""Loading, told: how a node comes to its state and to the consumer's t_last in an incarnation.

Gives log lines: one when the node is ready, and one every few seconds while that takes long. The
lines of nodes that are quick are for debugging: a recovery is told in a few lines.
"""

from __future__ import annotations

import logging

from driftline.barrier.barrier import Barrier
from driftline.deploy.node.restoring import Restoring
from driftline.engine.events import about, log

TOLD_EVERY_S = 5.0
"""How often a long load is told, in seconds."""

LONG_S = 1.0
"""A node whose load has taken so long says when it is ready."""


class Loading:
    """The loads of one node."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._number = 0
        self._began = self._tell_at = 0.0

    def begin(self, now: float, number: int) -> None:
        """The node begins to load snapshot `number`; 0: none."""
        self._number = number
        self._began, self._tell_at = now, now + TOLD_EVERY_S

    def look(self, now: float, restoring: Restoring) -> None:
        """The node is not ready yet."""
        if not self._began or now < self._tell_at:
            return
        self._tell_at = now + TOLD_EVERY_S
        if restoring.assembly is not None:
            doing = "it waits for the consumer"
        elif restoring.under_way:
            doing = f"{restoring.percent} % of {restoring.bytes / 1e6:.1f} MB are restored"
        else:
            doing = "it waits for the disk"
        took = now - self._began
        told = about("loading", name=self._name, percent=restoring.percent, seconds=took)
        log.info("%s has been loading for %.0f s: %s", self._name, took, doing, extra=told)

    def end(self, now: float, size: int, keys: int, barrier: Barrier) -> None:
        """The node is ready, with the states of `keys` keys; the consumer has said its t_last."""
        took = now - self._began
        told = about(
            "loaded", name=self._name, snapshot=self._number, bytes=size, keys=keys, seconds=took,
            t_last=barrier.t_last,
        )  # fmt: skip
        log.log(
            logging.INFO if took >= LONG_S else logging.DEBUG,
            "%s has loaded %.1f MB, %d keys, in %.1f s; the consumer has %s",
            *(self._name, size / 1e6, keys, took, barrier.stored_to),
            extra=told,
        )
