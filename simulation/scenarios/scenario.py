"""A scenario: all settings of the run that one seed simulates.

>>> draw_scenario(7) == draw_scenario(7)
True
"""

from __future__ import annotations

from random import Random

from msgspec import Struct
from msgspec.structs import replace

from driftline.deploy.roles.master import STALLED_AFTER_S
from driftline.engine.errors import FlowError
from driftline.engine.policy import Policy, SnapshotCut, get_policy
from driftline.simulation.scenarios.disturbances import (
    Hang,
    RescaleRequest,
    SlowConsumer,
    SlowFunctions,
    draw_hangs,
    draw_partitions,
    draw_rescales,
)
from driftline.simulation.scenarios.drawn import MODULE
from driftline.simulation.scenarios.flows import SIMULATED, SimulatedFlow
from driftline.simulation.scenarios.inputs import Inputs
from driftline.simulation.scenarios.live import ArrivalSchedule
from driftline.simulation.world.timeline import Faults, Partition

DRAWN_FLOW = SimulatedFlow(MODULE)

POLICIES_DRAWN = (
    ("exactly-once",) * 4 + ("two-phase", "strong-productions") * 2 + ("at-least-once",)
)
"""Policies; their counts are their weights in a draw. Another length would change every seed."""

POLICIES_WITH_BIT_FLIPS = ("exactly-once", "two-phase", "strong-productions", "at-least-once")
"""Policies under which bits flip on disks."""

MASTERS = "master-0", "master-1", "master-2"
"""Hosts of masters, if there are several."""

SLOW_S = (0.002, 0.02, 0.3, 7.0)
"""Durations of a slow element in seconds. During the longest, the master would declare the node
dead if long turns sent no heartbeats."""

CONSUMER_PAUSES_S = (0.01, 0.1, 0.7, STALLED_AFTER_S + 2.0)
"""Pauses of a slow consumer in seconds; during the longest, waiting work might count as stalled."""


class Scenario(Struct, frozen=True):
    """All settings that a simulated run depends on."""

    seed: int
    flow: SimulatedFlow
    policy: Policy
    nodes: int
    """Number of nodes at the start."""
    records: int
    """Number of generated records of each front; of records from files, the largest number."""
    window: int
    """Limit of a front's records in flight."""
    snapshot_interval_s: float
    faults: Faults
    live: tuple[ArrivalSchedule | None, ...] = (None,)
    """Front i uses `live[i % len(live)]`; None: all its records are available at once."""
    slow_functions: SlowFunctions | None = None
    """Which elements make functions slow; None: none."""
    sink: str = "memory"
    """Target of the outputs: memory, files or lmdb."""
    embedded: bool = False
    """Whether the consumer of each node is in the node's process."""
    files: Inputs | None = None
    """A user's records, from files or from memory; None: records are generated."""
    drain_at_s: float | None = None
    """When the run is asked to drain; the next run continues it. None: never."""
    slow_consumer: SlowConsumer | None = None
    """Slow consumers, which then run in a separate process; None: consumers are not slow."""
    hangs: tuple[Hang, ...] = ()
    """Processes that hang until the supervisor kills them."""
    rescale_requests: tuple[RescaleRequest, ...] = ()
    """Requests for other numbers of nodes."""
    standby: bool = False
    """Whether several masters queue in ZooKeeper, and may be cut off from it."""
    partitions: tuple[Partition, ...] = ()
    """One-way partitions between a master's host and a member's; needs standby masters."""

    def with_nodes_up_to(self, limit: int) -> Scenario:
        """Return the scenario with at most this many nodes, also after a rescaling."""
        requests = tuple(
            replace(request, nodes=min(request.nodes, limit)) for request in self.rescale_requests
        )
        return replace(self, nodes=min(self.nodes, limit), rescale_requests=requests)

    def __str__(self) -> str:
        return (
            f"{self.flow.spec} --seed {self.seed}: {self.policy.name} ({self.policy.ordering}), "
            f"{self.nodes} nodes, {'live' if any(self.live) else 'given'} input, "
            f"outputs in {self.sink}{', slow functions' if self.slow_functions else ''}"
            f"{', two runs' if self.drain_at_s is not None else ''}"
            f"{', slow consumers' if self.slow_consumer else ''}"
            f"{', processes that hang' if self.hangs else ''}"
            f"{', standby masters' if self.standby else ''}"
            f"{', partitions in the network' if self.partitions else ''}"
            f"{', rescaled' if self.rescale_requests else ''}"
        )

    @property
    def command(self) -> str:
        """The command that runs this scenario again."""
        files = f" {self.files}" if self.files else ""
        spec, name = self.flow.spec, self.policy.name
        return f"driftline simulate {spec} --seed {self.seed} --policy {name}{files}"


def draw_scenario(
    seed: int,
    flow: str | SimulatedFlow | None = None,
    name: str | None = None,
    files: Inputs | None = None,
) -> Scenario:
    """Return the scenario of a seed.

    `flow`: the flow, or its location (`load_flow`); `name`: the name of the policy. If one of them
    is None, the seed decides. `files`: a user's records; None: records are generated.

    Raises FlowError for a policy under which the flow has no unique correct outcome.
    """
    rng = Random(seed)
    simulated = _choose_flow(seed, flow, name)
    drawn_name = rng.choice(POLICIES_DRAWN)
    ordering = rng.choice(("speculative", "speculative", "buffered"))
    policy = get_policy(
        name or (drawn_name if simulated.order_independent else "exactly-once"), ordering
    )
    if simulated.loops and not policy.can_loop:
        policy = get_policy(policy.name)
    if not policy.ordered and not simulated.order_independent:
        raise FlowError(
            f"{simulated.spec} cannot be simulated with {policy.name}: its outputs may depend on "
            "the order of arrival, so there is no correct outcome to compare with"
        )
    is_builtin = simulated in SIMULATED or simulated == DRAWN_FLOW
    scenario = Scenario(
        seed,
        simulated,
        policy,
        faults=_draw_faults(rng, policy),
        live=(_draw_arrivals(rng), _draw_arrivals(rng)) if rng.random() < 0.4 else (None,),
        nodes=rng.choice((1, 2, 3)),
        records=rng.randrange(20, 80),
        window=rng.choice((2, 3, 5, 12, 100)),
        snapshot_interval_s=rng.choice((0.002, 0.005, 0.02)),
        slow_functions=_draw_slow_functions(rng) if rng.random() < 0.3 else None,
        sink=rng.choice(("memory",) * 5 + ("files", "files" if is_builtin else "memory", "lmdb")),
        embedded=rng.random() < 0.3,
        files=files,
    )
    # New settings are drawn after the others, or by a `Random` of their own. So a seed keeps its
    # other settings.
    crash_at_end = rng.choice((0.0, 0.05, 0.2))
    faults = replace(scenario.faults, crash_at_end=crash_at_end)
    drain_at_s = rng.random() * faults.until_s if rng.random() < 0.3 else None
    if policy.cut is SnapshotCut.NONE:
        drain_at_s = None  # the next run would start without state
    scenario = replace(scenario, faults=faults, drain_at_s=drain_at_s)
    if rng.random() < 0.15:
        slow_consumer = SlowConsumer(
            rng.choice(CONSUMER_PAUSES_S), faults.until_s, rng.choice((200, 1000, 5000))
        )
        scenario = replace(scenario, slow_consumer=slow_consumer, embedded=False)
    rng = Random(seed + 5)
    if policy.ordered and rng.random() < 0.2:
        scenario = replace(scenario, rescale_requests=draw_rescales(rng, faults.until_s))
    rng = Random(seed + 4)
    if rng.random() < 0.15:
        requests = scenario.rescale_requests
        new_nodes = requests[0].nodes if requests else 0
        hangs = draw_hangs(rng, scenario.nodes + new_nodes, faults.until_s)
        return replace(scenario, hangs=hangs)
    scenario = replace(scenario, standby=rng.random() < 0.25)
    rng = Random(seed + 6)
    if scenario.standby and rng.random() < 0.4:
        partitions = draw_partitions(rng, MASTERS, scenario.nodes, faults.until_s)
        return replace(scenario, partitions=partitions)
    return scenario


def _choose_flow(seed: int, flow: str | SimulatedFlow | None, name: str | None) -> SimulatedFlow:
    if isinstance(flow, SimulatedFlow):
        return flow
    if flow is not None:
        known = {simulated.spec: simulated for simulated in (*SIMULATED, DRAWN_FLOW)}
        return known.get(flow, SimulatedFlow(flow, order_independent=False))
    if seed % 2:
        return DRAWN_FLOW
    eligible = [s for s in SIMULATED if s.order_independent or name in (None, "exactly-once")]
    return eligible[seed // 2 % len(eligible)]


def _draw_faults(rng: Random, policy: Policy) -> Faults:
    def some(probability: float) -> float:
        return probability if rng.random() < 0.5 else 0.0  # swarm testing

    return Faults(
        until_s=rng.choice((0.2, 0.6, 1.5)),
        crash_at_message=some(0.002),
        crash_before_job=some(0.03),
        crash_after_job=some(0.03),
        crash_before_send=some(0.002),
        crash_at_consumer=some(0.01),
        late_message=some(0.8),
        job_fails=some(0.05),
        done_but_failed=some(0.03),
        power=some(0.5),
        bit_flip=some(rng.choice((0.1, 0.4))) if policy.name in POLICIES_WITH_BIT_FLIPS else 0.0,
        pause=some(0.001),
        cut=some(0.001),
        repeat=some(0.05),
        delay_s=rng.choice((0.0003, 0.001, 0.004)),
        slow=rng.choice((0.0, 0.02, 0.1)),
        job_s=rng.choice((0.0005, 0.004)),
    )


def _draw_arrivals(rng: Random) -> ArrivalSchedule | None:
    if rng.random() < 0.2:
        return None
    return ArrivalSchedule(
        until_s=rng.choice((0.05, 0.2, 0.8)),
        bursts=rng.choice((0, 0, 3, 10)),
        skew_s=rng.choice((0.0, 0.0, 0.5)),
        misbehaves=rng.choice((0.0, 0.05)),
        producers=rng.choice((1, 2)),
    )


def _draw_slow_functions(rng: Random) -> SlowFunctions:
    one_in, seconds = rng.choice((50, 300)), rng.choice(SLOW_S)
    return SlowFunctions(one_in if seconds < 1.0 else 300, seconds)


def without_faults(scenario: Scenario) -> Scenario:
    """Return the scenario without faults, hangs and partitions."""
    old = scenario.faults
    faults = Faults(delay_s=old.delay_s, slow=old.slow, job_s=old.job_s)
    return replace(scenario, faults=faults, hangs=(), partitions=())
