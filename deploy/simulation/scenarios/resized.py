"""Runs that change their number of nodes.

>>> resized(Random(4), until_s=0.6)
(Resized(nodes=4, at_s=0.06065971717710201),)
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Resized:
    """From the time `at_s` on the run is asked to have so many nodes."""

    nodes: int
    at_s: float


def resized(chance: Random, until_s: float) -> tuple[Resized, ...]:
    """Draw one or two changes before the time `until_s`, early, as inputs come to their ends."""
    times = sorted(chance.random() * until_s / 3 for _ in range(chance.choice((1, 1, 2))))
    return tuple(Resized(chance.choice((1, 2, 3, 4)), at_s) for at_s in times)
