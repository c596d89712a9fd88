"""`simulate`: a flow under every fault, from Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from driftline.deploy.api.inputs import Inputs, check_record, sources_of
from driftline.deploy.simulation.report import Report
from driftline.deploy.simulation.scenarios.flows import Simulated
from driftline.deploy.simulation.scenarios.inputs import GivenRecords
from driftline.deploy.simulation.scenarios.scenario import Scenario, scenario
from driftline.deploy.simulation.seeds import check_flow, run_one
from driftline.engine.errors import FlowError, SimulationFailed
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import check_not_loading, load_flow
from driftline.engine.sources import LiveSource, Source, strict

RECORDS_MAX = 10_000
"""Records of one source that are simulated."""


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What was simulated, with the right outcome each time."""

    seeds: int
    faults: dict[str, int]
    """How often each kind of fault has happened."""


def simulate(
    flow: Flow | str,
    inputs: Inputs,
    *,
    seeds: int | range = 100,
    nodes: int | None = None,
    policy: str = "exactly-once",
) -> SimulationReport:
    """Run a flow over records in simulated clusters that fail in every way, and check its outputs.

        >>> import operator
        >>> from driftline import Flow, ReducingState, simulate
        >>> flow = Flow("totals")
        >>> add = lambda order, total: (order["who"], total.add(order["price"]))
        >>> spent = ReducingState("spent", operator.add)
        >>> flow.source("orders").key_by("who").scan(add, spent).sink("totals")
        >>> orders = [{"who": "Ann", "price": 5}, {"who": "Bob", "price": 7}] * 10
        >>> simulate(flow, {"orders": orders}, seeds=3).seeds
        3

    A seed decides how long messages take, who crashes where, which disk writes fail, which bits
    flip, which functions are slow; the outputs must be those of `run_reference`. It finds functions
    that are not deterministic, or keep something that is not in a state. A seed takes some
    milliseconds for each record: some dozen records, which meet at the same keys, are enough.

    Arguments:
        flow: a Flow, or where one is: ``"module:name"``, ``"file.py:name"``.
        inputs: as for `run`; all records are read first.
        seeds: how many, from 1, or a range of them.
        nodes: how many. [default: decided by the seed]
        policy: one whose outputs have an order.

    Raises SimulationFailed for the first seed that comes to something else, with what differs and
    how to repeat it; FlowError for a flow or inputs that cannot be simulated.
    """
    check_not_loading("simulate(...)")
    found = (load_flow(flow) if isinstance(flow, str) else flow).validate()
    chosen = range(1, seeds + 1) if isinstance(seeds, int) else seeds
    if not chosen or (nodes is not None and nodes < 1):
        raise FlowError(f"seeds={seeds}, nodes={nodes}: a simulation needs at least one of each")
    records = GivenRecords([_records(source) for source in sources_of(found, inputs)])
    simulated = Simulated(found.name, any_order=False, given=found)
    report = Report()
    for seed in chosen:
        what = scenario(seed, simulated, policy, records)
        if nodes is not None:
            what = replace(what, nodes=nodes)
        if seed == chosen[0]:
            check_flow(what, "give it others")
        outcome = run_one(what)
        report.note(outcome)
        if outcome.problem:
            raise SimulationFailed(_told(what, outcome.problem, nodes), seed)
    return SimulationReport(report.seeds, report.faults)


def _records(source: Source | LiveSource) -> list[object]:
    """All records of a source. Raises FlowError if they are too many."""
    found = (record for record in source.read(1) if record is not None)
    read: list[object] = []
    for time, record in islice(strict(found), RECORDS_MAX + 1):
        check_record(source.name, time, record)
        read.append(record)
    if len(read) > RECORDS_MAX:
        raise FlowError(
            f"source {source.name!r} has more than {RECORDS_MAX} records: simulate some of them"
        )
    return read


def _told(what: Scenario, problem: str, nodes: int | None) -> str:
    also = "" if nodes is None else f", nodes={nodes}"
    return (
        f"flow {what.flow.spec!r} comes to something else under faults than by run_reference, with "
        f"seed {what.seed} ({what.nodes} nodes): {problem}\n"
        f"  Repeat it: simulate(flow, inputs, seeds=range({what.seed}, {what.seed + 1}){also})"
    )
