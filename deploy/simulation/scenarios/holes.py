"""Holes in the network: what one host sends to another one is lost, for as long as the hole lasts.

>>> drawn = holes(Random(3), ("m-0", "m-1"), nodes=2, until_s=0.6)
>>> [(hole.sender, hole.receiver) for hole in drawn]
[('m-0', 'node-0'), ('node-0', 'm-0')]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random


@dataclass(frozen=True, slots=True)
class Hole:
    """From the time `at_s` until `until_s` nothing that `sender` sends arrives at `receiver`."""

    sender: str
    receiver: str
    at_s: float
    until_s: float = inf


def holes(chance: Random, masters: Sequence[str], nodes: int, until_s: float) -> tuple[Hole, ...]:
    """Draw holes between one member and all masters but one, or fewer: in one direction, or both.

    They begin before the time `until_s`; most never end.
    """
    members = ["front-0", *(f"node-{i}" for i in range(nodes))]
    found = []
    for master in chance.sample(masters, chance.randint(1, len(masters) - 1)):
        member, at_s = chance.choice(members), chance.random() * until_s
        end_s = at_s + chance.choice((inf, inf, 30.0))
        ways = chance.choice((((master, member),), ((member, master),), None))
        for sender, receiver in ways or ((master, member), (member, master)):
            found.append(Hole(sender, receiver, at_s, end_s))
    return tuple(found)
