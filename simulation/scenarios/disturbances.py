"""Disturbances of a scenario besides random faults: slow functions, slow consumers, hanging
processes, one-way partitions of the network, changes of the number of nodes.

>>> [hang.host for hang in draw_hangs(Random(13), nodes=2, until_s=0.6)]
['node-0', 'node-1']
>>> drawn = draw_partitions(Random(3), ("m-0", "m-1"), nodes=2, until_s=0.6)
>>> [(partition.sender, partition.receiver) for partition in drawn]
[('m-0', 'node-0'), ('node-0', 'm-0')]
>>> draw_rescales(Random(4), until_s=0.6)
(RescaleRequest(nodes=4, at_s=0.06065971717710201),)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from random import Random
from zlib import crc32

from msgspec import Struct

from driftline.engine.flow.flow import Flow
from driftline.engine.operators.keyed_operators import Process
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.steps import Function
from driftline.engine.wire.codec import canonical_bytes
from driftline.simulation.world.timeline import Partition


class SlowConsumer(Struct, frozen=True):
    """Consumer that pauses for `seconds` after each bundle, until the time `until_s`.

    `waiting_bytes`: bytes of outputs that may wait for the consumer before a node holds back its
    input.
    """

    seconds: float
    until_s: float
    waiting_bytes: int


class Hang(Struct, frozen=True):
    """Hang of a host's process, a node or the master, at the time `at_s` or soon afterwards."""

    host: str
    at_s: float


def draw_hangs(rng: Random, nodes: int, until_s: float) -> tuple[Hang, ...]:
    """Draw up to three hangs of the master and the first `nodes` nodes, before `until_s`."""
    hosts = ["master", *(f"node-{i}" for i in range(nodes))]
    count = rng.choice((1, 1, 2, 3))
    return tuple(Hang(rng.choice(hosts), rng.random() * until_s) for _ in range(count))


def draw_partitions(
    rng: Random, masters: Sequence[str], nodes: int, until_s: float
) -> tuple[Partition, ...]:
    """Draw partitions between members and some of the masters, in one direction or both.

    At least one master has none. Partitions begin before the time `until_s`; most never end.
    """
    members = ["front-0", *(f"node-{i}" for i in range(nodes))]
    partitions = []
    for master in rng.sample(masters, rng.randint(1, len(masters) - 1)):
        member, at_s = rng.choice(members), rng.random() * until_s
        end_s = at_s + rng.choice((inf, inf, 30.0))
        one_way = rng.choice((((master, member),), ((member, master),), None))
        for sender, receiver in one_way or ((master, member), (member, master)):
            partitions.append(Partition(sender, receiver, at_s, end_s))
    return tuple(partitions)


class RescaleRequest(Struct, frozen=True):
    """Request for this number of nodes from the time `at_s` on."""

    nodes: int
    at_s: float


def draw_rescales(rng: Random, until_s: float) -> tuple[RescaleRequest, ...]:
    """Draw one or two requests in the first third of `until_s`, as inputs may end soon after it."""
    times = sorted(rng.random() * until_s / 3 for _ in range(rng.choice((1, 1, 2))))
    return tuple(RescaleRequest(rng.choice((1, 2, 3, 4)), at_s) for at_s in times)


class SlowFunctions(Struct, frozen=True):
    """One in `one_in` elements takes `seconds` in each function that it passes."""

    one_in: int
    seconds: float


def with_slow_functions(
    flow: Flow, slow_functions: SlowFunctions, spend: Callable[[float], None]
) -> Flow:
    """Return the flow with slow functions; they call `spend` with the seconds that they take."""
    vertices = [
        vertex
        if vertex.function is None
        else replace(vertex, function=_slow(vertex, vertex.function, slow_functions, spend))
        for vertex in flow.vertices
    ]
    return Flow(flow.name, flow.groups, vertices)


def _slow(
    vertex: Vertex,
    function: Function,
    slow_functions: SlowFunctions,
    spend: Callable[[float], None],
) -> Function:
    element_at = 1 if isinstance(vertex.operator, Process) else 0  # argument 0 is the context

    def slow(*arguments: object) -> object:
        if not crc32(canonical_bytes(arguments[element_at])) % slow_functions.one_in:
            spend(slow_functions.seconds)
        return function(*arguments)

    return slow
