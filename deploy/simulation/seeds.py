"""Runs scenarios: one seed, or some one after the other."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path

from driftline.deploy.graph import as_text
from driftline.deploy.simulation.report import Report
from driftline.deploy.simulation.scenarios.inputs import Inputs
from driftline.deploy.simulation.scenarios.scenario import DRAWN_FLOW, Scenario, scenario
from driftline.deploy.simulation.simulation import Outcome, Simulation
from driftline.engine.errors import FlowError
from driftline.engine.order.steps import FAILURES
from driftline.engine.reference import run_reference


def run_chunk(
    seeds: range, flow: str | None, policy: str | None, files: Inputs | None = None
) -> Report:
    """Run seeds one after the other."""
    report = Report()
    for seed in seeds:
        report.note(run_one(scenario(seed, flow, policy, files)))
    return report


def run_one(what: Scenario, tell: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed; a crash of our own code is a failure like others.

    `tell`: is told everything that happens.
    """
    log = logging.getLogger("driftline")
    if tell is not None:
        tell(str(what))
        logging.basicConfig(format="             %(message)s", level=logging.INFO)
    before = log.disabled
    log.disabled = tell is None
    simulation = Simulation(what, tell)
    if tell is not None:
        tell(as_text(simulation.flow))
    try:
        outcome = simulation.run()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        outcome = Outcome(what, problem, simulation.counted, simulation.timeline.now)
    finally:
        log.disabled = before
    if outcome.problem and what.flow == DRAWN_FLOW:
        outcome.flow = as_text(simulation.flow)
    return outcome


def check_flow(what: Scenario, advice: str) -> None:
    """Raises FlowError for a flow that cannot be loaded, or can do nothing with its records."""
    simulation = Simulation(what)
    items = list(run_reference(simulation.flow, simulation.inputs, dead_letters=True))
    if items and all(item.sink == FAILURES for item in items):
        assert isinstance(items[0].value, tuple)
        raise FlowError(
            f"{what.flow.spec} fails on every record of the simulation: {items[0].value[3]}. Its "
            f"records look like {simulation.inputs[0][0]}; {advice}"
        )
