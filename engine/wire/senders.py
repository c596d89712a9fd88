"""Who may send what: the roles from which each kind of message can come.

Between the processes of one machine nobody asks. Between hosts each message comes with a *voice*,
the key of its sender (`deploy.host.sockets.zap`), which speaks for some names only; and a name may
send only what its role sends: no consumer can stop a run.

Invariant: every kind of message is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire import messages as m

MASTER, NODE, FRONT, CONSUMER = "master", "node", "front", "consumer"
WATCH, AGENT = "watch", "agent"

_MEMBERS = frozenset({NODE, FRONT})

SENDERS: Mapping[type[m.Message], frozenset[str]] = {
    **dict.fromkeys((m.Frame, m.Marker, m.Drained, m.Prepared, m.AskSnapshot), _MEMBERS),
    **dict.fromkeys((m.Hello, m.Alive, m.Lost, m.Goodbye, m.Following), _MEMBERS),
    **dict.fromkeys((m.Progress, m.Drain, m.Prepare, m.BeginEpoch), frozenset({MASTER})),
    **dict.fromkeys((m.Committed, m.Recover, m.Start, m.Stop, m.Lead), frozenset({MASTER})),
    **dict.fromkeys((m.Acknowledge, m.Reached, m.PrepareFailed, m.Unloadable), frozenset({NODE})),
    **dict.fromkeys((m.Bundle, m.FetchLast, m.Delivered), frozenset({NODE})),
    **dict.fromkeys((m.BundleStored, m.Delayed, m.LastBundle), frozenset({CONSUMER})),
    m.Promise: frozenset({FRONT}),
    m.AskPromise: frozenset({MASTER, NODE}),
    m.Failed: frozenset({NODE, FRONT, CONSUMER}),
    **dict.fromkeys((m.Join, m.Hold, m.GoOn), frozenset({MASTER})),
    **dict.fromkeys((m.AskParts, m.AskSlice), frozenset({NODE, WATCH})),
    **dict.fromkeys((m.Parts, m.NoParts, m.Slice), frozenset({NODE})),
    m.Joined: frozenset({NODE}),
    **dict.fromkeys((m.Held, m.UsedBelow), frozenset({FRONT})),
    m.Resize: frozenset({WATCH, AGENT}),
    **dict.fromkeys((m.AskReport, m.AskUsed), frozenset({WATCH})),
    **dict.fromkeys((m.MasterAt, m.AskDrain), frozenset({AGENT})),
    m.Report: frozenset({MASTER, NODE, FRONT}),
}
"""Kind of message -> the roles that send it."""


class Voice(Protocol):
    """The key by which a message has come."""

    @property
    def key(self) -> str:
        """Its name."""

    def speaks_for(self, name: str) -> bool:
        """Whether it may speak in this name."""


def check(voice: Voice, sender: str, message: m.Message) -> None:
    """Raises MalformedMessage if this key may not send this message in this name."""
    if not voice.speaks_for(sender):
        raise MalformedMessage(f"the key {voice.key} does not speak for {sender!r}")
    if sender.partition("-")[0] not in SENDERS.get(type(message), ()):
        raise MalformedMessage(f"{type(message).__name__} is not for {sender!r} to send")
