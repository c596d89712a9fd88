"""Channels without a safeguard: lost, repeated and stale messages are handled.

The acker also detects what a gap loses, as work that does not complete. A gap is the only sign if a
frame and its promise are lost together (exactly-once), or if a marker arrives while the frame
before it is lost (two-phase).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

from driftline.deploy.node.stages import EMPTY_ACKNOWLEDGE
from driftline.engine.wire.messages import Message, MessageHeader, Promise
from driftline.engine.wire.role import Role


def _receiving(
    mutated: Callable[[Role, MessageHeader, Callable[[Role, MessageHeader], bool]], bool],
) -> AbstractContextManager[object]:
    is_next = Role._accept_in_sequence
    return patch.object(
        Role, "_accept_in_sequence", lambda self, header: mutated(self, header, is_next)
    )


def incarnation_is_not_checked() -> AbstractContextManager[object]:
    """Handle messages of earlier incarnations."""
    return _receiving(
        lambda party, header, is_next: (
            header.incarnation != party.incarnation or is_next(party, header)
        )
    )


def gaps_are_not_detected() -> AbstractContextManager[object]:
    """Handle the messages after a gap."""

    def mutated(
        party: Role, header: MessageHeader, is_next: Callable[[Role, MessageHeader], bool]
    ) -> bool:
        if header.incarnation == party.incarnation:
            seen = party._last_numbers.get(header.sender, 0)
            party._last_numbers[header.sender] = max(seen, header.sequence - 1)
        return is_next(party, header)

    return _receiving(mutated)


def repeated_batches_are_applied() -> AbstractContextManager[object]:
    """Let the master apply a repeated message again."""
    return _receiving(
        lambda party, header, is_next: (
            is_next(party, header)
            or (
                party.name == "master"
                and header.incarnation == party.incarnation
                and header.sender not in party._broken
            )
        )
    )


def idle_channels_send_nothing() -> AbstractContextManager[object]:
    """Send no empty messages without label order: the loss of the last message is not detected."""
    send = Role.send

    def mutated(self: Role, to: str, message: Message) -> None:
        if message is not EMPTY_ACKNOWLEDGE and message not in (
            Promise(0, 0, 0, 0),
            Promise(1, 0, 0, 0),
        ):
            send(self, to, message)

    return patch.object(Role, "send", mutated)
