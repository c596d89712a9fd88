"""Rights: the names that a key speaks for, the source that it sends to, the sinks that it takes.

A name, a source or a sink is given exactly, or by its beginning and a `*`:

    >>> Rights(names=("master", "node-*")).speaks_for("node-3")
    True
    >>> Rights(names=("shop", "shop-*"), sources=("orders",)).may_send_to("payments")
    False

Hosts have names only, those of the parties that may run there. A producer has sources, and the ids
of producers that it may use as its names; a consumer has sinks, and the name of a party.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from driftline.engine.errors import NotPermitted

HOST_NAMES = ("master", "node-*", "front-*", "watch", "watch-*", "agent")
"""What a host may run."""

HOST, PRODUCER, CONSUMER = "host", "producer", "consumer"
"""Whose a key may be; the last one is the party that takes outputs, too."""

NAME_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Rights:
    """What a key may do. Raises NotPermitted if a pattern cannot be one."""

    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.names, *self.sources, *self.sinks):
            if "*" in pattern[:-1] or not 0 < len(pattern) <= NAME_CHARS_MAX:
                raise NotPermitted(f"{pattern!r} is neither a name nor the beginning of one with *")
            if not pattern.isprintable():
                raise NotPermitted(f"{pattern!r} has characters that no name has")

    @property
    def is_member(self) -> bool:
        """Whether it may speak to members at all: producers speak to the intake only."""
        return not self.sources

    @property
    def whose(self) -> str:
        """Of what kind is who has such a key: a host, a producer or a consumer."""
        return PRODUCER if self.sources else CONSUMER if self.sinks else HOST

    def speaks_for(self, name: str) -> bool:
        """Whether it may speak in this name."""
        return _fits(name, self.names)

    def may_send_to(self, source: str) -> bool:
        """Whether it may send records to this source."""
        return _fits(source, self.sources)

    def may_take(self, sinks: Iterable[str]) -> bool:
        """Whether it may have the outputs of all these sinks."""
        return all(_fits(sink, self.sinks) for sink in sinks)


def host_rights() -> Rights:
    """The rights of a host of a cluster."""
    return Rights(HOST_NAMES)


def producer_rights(name: str, sources: Iterable[str]) -> Rights:
    """The rights of a producer; `name`: that of its key."""
    return Rights((name, f"{name}-*"), sources=tuple(sources))


def consumer_rights(sinks: Iterable[str]) -> Rights:
    """The rights of a consumer."""
    return Rights((CONSUMER,), sinks=tuple(sinks))


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        for pattern in patterns
    )
