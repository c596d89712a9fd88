"""Processes that hang: from some moment on they say nothing, and do nothing, until they are killed.

>>> [hang.host for hang in hangs(Random(13), nodes=2, until_s=0.6)]
['node-0', 'node-1']
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Hang:
    """A process of a host, a node or the master, hangs at the time `at_s`, or soon afterwards."""

    host: str
    at_s: float


def hangs(chance: Random, nodes: int, until_s: float) -> tuple[Hang, ...]:
    """Draw up to three hangs before the time `until_s`, of the master and the first `nodes`."""
    hosts = ["master", *(f"node-{i}" for i in range(nodes))]
    count = chance.choice((1, 1, 2, 3))
    return tuple(Hang(chance.choice(hosts), chance.random() * until_s) for _ in range(count))
