"""Runs the scenario of one seed, or of several seeds one after the other."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path

from driftline.deploy.graph import as_text
from driftline.deploy.simulation.report import Report
from driftline.deploy.simulation.scenarios.inputs import Inputs
from driftline.deploy.simulation.scenarios.scenario import DRAWN_FLOW, Scenario
from driftline.deploy.simulation.scenarios.scenario import scenario as scenario_of
from driftline.deploy.simulation.simulation import Outcome, Simulation
from driftline.engine.errors import FlowError
from driftline.engine.operators.context import parts
from driftline.engine.operators.steps import FAILURES
from driftline.engine.reference import run_reference


def run_seeds(
    seeds: range, flow: str | None, policy: str | None, files: Inputs | None = None
) -> Report:
    """Run seeds one after the other; arguments as for `scenario`."""
    report = Report()
    for seed in seeds:
        report.note(run_one(scenario_of(seed, flow, policy, files)))
    return report


def run_one(scenario: Scenario, tell: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed. An unexpected exception is a failure of the seed.

    `tell`: called with each line of the trace; None: no trace.
    """
    log = logging.getLogger("driftline")
    if tell is not None:
        tell(str(scenario))
        logging.basicConfig(format="             %(message)s", level=logging.INFO)
    before = log.disabled
    log.disabled = tell is None
    simulation = Simulation(scenario, tell)
    if tell is not None:
        tell(as_text(simulation.flow))
    try:
        outcome = simulation.run()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        outcome = Outcome(scenario, problem, simulation.counted, simulation.timeline.now)
    finally:
        log.disabled = before
    if outcome.problem and scenario.flow == DRAWN_FLOW:
        outcome.flow = as_text(simulation.flow)
    return outcome


def check_flow(scenario: Scenario, advice: str) -> str:
    """Try a flow by the reference interpreter. Returns a note on elements whose function raises.

    `advice`: the end of the error, which says how to give the flow other records. Raises FlowError
    for a flow that cannot be loaded, or whose functions fail on every record.
    """
    simulation = Simulation(scenario)
    items = list(run_reference(simulation.flow, simulation.inputs, dead_letters=True))
    failures = [item for item in items if item.sink == FAILURES]
    if not failures:
        return ""
    operator, _, _, error, _, _ = parts(failures[0].value)
    if len(failures) == len(items):
        raise FlowError(
            f"{scenario.flow.spec} fails on every record of the simulation: {error}. "
            f"Its records look like {simulation.inputs[0][0]}; {advice}"
        )
    return (
        f"of the first seed {len(failures)} elements fail, at first in operator {operator!r}: "
        f"{error}. Simulated runs set them aside; `driftline run` stops, or has --on-error "
        "dead-letter"
    )
