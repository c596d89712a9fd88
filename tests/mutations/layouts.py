"""The way to another layout without a safeguard."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from unittest.mock import patch

from driftline.acker.gathered import Gathered
from driftline.coordinator.resizing import Resizing
from driftline.deploy.node.giving import Giving
from driftline.deploy.node.pulling import Pull
from driftline.deploy.parties.front import Front
from driftline.engine.wire.messages import Held, Hold


def the_cut_may_be_earlier_than_what_has_left() -> AbstractContextManager[object]:
    """A replay may not have come as far as the outputs that consumers have."""
    return patch.object(Gathered, "left", -1)


def fronts_go_on_meanwhile() -> AbstractContextManager[object]:
    """Fronts say how far they are, and send more."""
    hold = Front._hold

    def mutated(self: Front, message: Hold) -> None:
        hold(self, message)
        self._held = 1 << 62

    return patch.object(Front, "_hold", mutated)


def an_answer_to_an_earlier_question_counts() -> AbstractContextManager[object]:
    """A front was held, went on, and is to be held again."""
    held = Resizing.held

    def mutated(self: Resizing, front: str, message: Held) -> None:
        held(self, front, replace(message, number=self._number))

    return patch.object(Resizing, "held", mutated)


def not_all_has_to_be_copied() -> AbstractContextManager[object]:
    """The layout changes before its nodes have the last snapshot."""
    return patch.object(Resizing, "_have_all", lambda self, state: True)


def copies_are_not_compared() -> AbstractContextManager[object]:
    """Parts are joined while another node reads them, and nobody notices."""
    return patch.multiple(Pull, _check=lambda self, segment, checksum, what: None)


def parts_are_joined_while_they_are_read() -> AbstractContextManager[object]:
    return patch.object(Giving, "is_read", lambda self, now: False)


def a_recovery_does_not_interrupt() -> AbstractContextManager[object]:
    """The layout of now recovers, and the change to the next one goes on as if it had not."""
    return patch.object(Resizing, "interrupted", lambda self: None)
