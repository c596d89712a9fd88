"""`simulate`: test a flow under simulated faults, from Python."""

from __future__ import annotations

from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from driftline.api.inputs import Inputs, sources_of
from driftline.connectors.live import LiveSource
from driftline.engine.errors import FlowError, SimulationFailed
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import check_not_loading, resolve_flow
from driftline.engine.sources import RetainedSource, Source, strict
from driftline.simulation.scenarios.flows import SimulatedFlow
from driftline.simulation.scenarios.inputs import GivenRecords
from driftline.simulation.scenarios.scenario import Scenario, draw_scenario
from driftline.simulation.seeds import SeedReport, check_flow, run_one

RECORDS_MAX = 10_000
"""Maximum number of simulated records per source."""


class SimulationReport(Struct, frozen=True):
    """Figures of a simulation in which the outputs of every seed were correct."""

    seeds: int
    """Number of simulated seeds."""
    faults: dict[str, int]
    """Kind of fault -> number of such faults in all seeds."""


def simulate(
    flow: Flow | str,
    inputs: Inputs,
    *,
    seeds: int | range = 100,
    nodes: int | None = None,
    policy: str = "exactly-once",
) -> SimulationReport:
    """Run a flow over records in simulated clusters with injected faults, and check its outputs.

        >>> import operator
        >>> from driftline import Flow, ReducingState, simulate
        >>> flow = Flow("totals")
        >>> add = lambda order, total: (order["who"], total.add(order["price"]))
        >>> spent = ReducingState("spent", operator.add)
        >>> flow.source("orders").key_by("who").scan(add, spent).sink("totals")
        >>> orders = [{"who": "Ann", "price": 5}, {"who": "Bob", "price": 7}] * 10
        >>> simulate(flow, {"orders": orders}, seeds=3).seeds
        3

    A seed determines message delays, crashes, failed disk writes, flipped bits and slow functions;
    the outputs must be those of `run_reference`. A simulation finds functions that are not
    deterministic, or that keep data outside of their states. A few dozen records that share keys
    are enough. A seed takes a few milliseconds for each record.

    Args:
        flow: A Flow, or the name of one: ``"module:name"``, ``"file.py:name"``.
        inputs: As for `run`; all records are read before the first seed runs.
        seeds: Number of seeds, starting with seed 1; or a range of seeds.
        nodes: Number of nodes; by default the seed determines it.
        policy: ``"exactly-once"``, the only policy with label order.

    Returns:
        The number of seeds, and the faults that occurred.

    Raises:
        SimulationFailed: The run of a seed stopped, or its outputs differ. The error names the
            first difference, and the call that repeats the seed.
        FlowError: The flow or its inputs cannot be simulated, or an argument is invalid.
        InputError: A record cannot be read, or has values outside the wire format.
        Unavailable: A file cannot be opened.
    """
    check_not_loading("simulate(...)")
    loaded = resolve_flow(flow).validate()
    if not isinstance(seeds, (int, range)):
        raise FlowError(f"seeds={seeds!r}: give a number of seeds, or a range of seeds")
    seed_range = range(1, seeds + 1) if isinstance(seeds, int) else seeds
    if not seed_range:
        raise FlowError(f"seeds={seeds}: give at least one seed")
    if nodes is not None and nodes < 1:
        raise FlowError(f"nodes={nodes}: give at least one node")
    records = GivenRecords([_records(source) for source in sources_of(loaded, inputs)])
    simulated = SimulatedFlow(loaded.name, order_independent=False, flow=loaded)
    report = SeedReport()
    for seed in seed_range:
        scenario = draw_scenario(seed, simulated, policy, records)
        if nodes is not None:
            scenario = replace(scenario, nodes=nodes)
        if seed == seed_range[0]:
            check_flow(scenario, "give it other records")
        outcome = run_one(scenario)
        report.add_outcome(outcome)
        if outcome.problem:
            raise SimulationFailed(_failure(scenario, outcome.problem, nodes), seed)
    return SimulationReport(report.seeds, report.faults)


def _records(source: Source | RetainedSource | LiveSource) -> list[object]:
    """Read all records of a source. Raises FlowError if they are too many, or live."""
    if isinstance(source, LiveSource):
        raise FlowError(f"simulate replays its records, but {source.name!r} is live: give a list")
    records: list[object] = []
    available = (record for record in source.read(1) if record is not None)
    for _, record in islice(strict(available), RECORDS_MAX + 1):
        records.append(record)
    if len(records) > RECORDS_MAX:
        raise FlowError(
            f"source {source.name!r} has more than {RECORDS_MAX:,} records: simulate some of them"
        )
    return records


def _failure(scenario: Scenario, problem: str, nodes: int | None) -> str:
    """Return the message of a `SimulationFailed`."""
    seed = scenario.seed
    nodes_argument = "" if nodes is None else f", nodes={nodes}"
    return (
        f"flow {scenario.flow.spec!r} fails under the faults of seed {seed} "
        f"({scenario.nodes} nodes): {problem}\n"
        f"  Repeat it: simulate(flow, inputs, seeds=range({seed}, {seed + 1}){nodes_argument})"
    )
