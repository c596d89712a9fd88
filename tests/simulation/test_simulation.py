"""Simulated runs: the outcome is correct under all faults, in any order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from driftline.engine.errors import InputError
from driftline.engine.policy import POLICIES
from driftline.simulation.command import simulate
from driftline.simulation.scenarios.flows import SIMULATED
from driftline.simulation.scenarios.scenario import DRAWN_FLOW, draw_scenario, without_faults
from driftline.simulation.seeds import SeedReport, run_one, run_seeds
from driftline.simulation.simulation import Simulation

FIRST, SEEDS = 50, 110

RARE = (140, 141, 143, 299, 463)
"""Seeds with rare cases: a paused master, a live source with at-least-once on one node, a front
that a master cannot reach, a consumer that dies at a message, a damaged input log."""

ROOT = Path(__file__).resolve().parents[3]


ONCE_WRONG = [
    ("two_fronts", 5437, "a frame that was held back held its own tracking time back for ever"),
    ("two_counts", 1558, "the same, behind two shuffles"),
]
"""Seeds that found a bug that the range of seeds above does not find."""


@pytest.mark.parametrize(("flow", "seed", "bug"), ONCE_WRONG)
def test_seeds_of_past_bugs_pass(flow: str, seed: int, bug: str) -> None:
    outcome = run_one(
        draw_scenario(seed, f"driftline.simulation.scenarios.flows:{flow}", "exactly-once")
    )
    assert not outcome.problem, f"{outcome.problem}: {bug}?"


def test_ended_but_unread_stream_is_part_of_the_ending_run() -> None:
    outcome = run_one(draw_scenario(20583, name="exactly-once"))
    assert not outcome.problem
    assert outcome.counted["drained run continued"] == 1


HAPPENS_AT_LEAST = {
    "committed snapshot": 300,
    "merged snapshots": 300,
    "recovery from the beginning": 30,
    "recovery from a snapshot": 30,
    "older snapshot used": 1,
    "bit flip in data of barrier": 1,
    "bit flip in data of input log of front": 1,
    "bit flip in data of node": 1,
    "bit flip in data of registry": 1,
    "stopped because of damage": 1,
    "slow turn of node": 15,
    "slow consumer": 25,
    "back-pressure on an input": 50,
    "power failure": 1,
    "failed file operation": 1,
    "cut connection": 5,
    "lost message": 25,
    "repeated message": 50,
    "producer resynchronised": 5,
    "producer that breaks the protocol": 50,
    "unknown producer refused": 50,
    "pause front": 1,
    "pause master": 1,
    "repeated write of the registry": 1,
    "pause node": 1,
    "takeover": 5,
    "stepped down": 5,
    "one-way partition front to master": 1,
    "one-way partition master to front": 1,
    "one-way partition master to node": 1,
    "one-way partition node to master": 1,
    "rescaled": 5,
    "hang master": 5,
    "hang node": 5,
    "crash master after a silence": 5,
    "crash node after a silence": 5,
    "failed deliver": 1,
    "crash master during the shutdown": 50,
    "crash node during the shutdown": 5,
    "crash front during the shutdown": 5,
    **{
        f"{how} {job}": 3
        for how in ("failed", "failure reported although done:")
        for job in ("LoadSnapshot", "StoreSnapshot", "MergeParts", "WriteGroup", "WriteState")
    },
    **{
        f"crash {who} {where}": 1
        for who, places in {
            "node": [
                f"{when} {job}"
                for job in ("LoadSnapshot", "StoreSnapshot", "MergeParts")
                for when in ("before", "after")
            ],
            "master": ["before WriteState", "after WriteState"],
            "consumer": ["before deliver", "in a file operation", "after deliver"],
            "front": ["before WriteGroup", "after WriteGroup"],
        }.items()
        for where in places
    },
    "crash producer before sending": 1,
    "crash consumer at a message": 1,  # "before sending" is "after deliver", see above
    **{
        f"crash {who} {where}": 1
        for who in ("front", "master", "node")
        for where in ("at a message", "before sending")
    },
}


@cache
def first_seeds() -> SeedReport:
    """Return the outcomes of the first seeds; cached, because two tests use them."""
    return run_seeds(range(1, FIRST + 1), None, None)


@pytest.mark.fast
def test_first_seeds_pass() -> None:
    assert first_seeds().failures == []


def test_all_seeds_pass_and_cover_every_fault_and_failpoint() -> None:
    report = run_seeds(range(FIRST + 1, SEEDS + 1), None, None)
    report.merge(run_seeds(RARE, None, None))
    assert first_seeds().failures + report.failures == []
    counted = first_seeds().counted + report.counted
    missing = {what: counted[what] for what, n in HAPPENS_AT_LEAST.items() if counted[what] < n}
    assert not missing


def test_these_seeds_cover_all_flows_policies_and_kinds_of_input() -> None:
    drawn = [draw_scenario(seed) for seed in (*range(1, SEEDS + 1), *RARE)]
    assert {what.flow for what in drawn} == {*SIMULATED, DRAWN_FLOW}
    assert {(what.sink, what.embedded) for what in drawn} == {
        (sink, embedded) for sink in ("memory", "files", "lmdb") for embedded in (True, False)
    }
    ways = {(w.policy.name, w.policy.ordering, w.nodes, any(w.live)) for w in drawn}
    for name, ordering in (
        ("exactly-once", "speculative"),
        ("exactly-once", "buffered"),
        ("two-phase", "arrival"),
        ("strong-productions", "arrival"),
        ("at-least-once", "arrival"),
    ):
        for nodes in (1, 2, 3):
            for live in (True, False):
                assert (name, ordering, nodes, live) in ways


def test_every_policy_passes_without_faults() -> None:
    for name in POLICIES:
        for seed in (1, 2):
            one_run = replace(draw_scenario(seed, name=name), drain_at_s=None)
            outcome = run_one(without_faults(one_run))
            assert not outcome.problem, outcome.scenario.command
            assert not any("recovery" in what for what in outcome.counted), (
                f"{outcome.scenario.command}: nothing was lost"
            )


def test_policy_none_loses_and_duplicates_outputs_under_faults() -> None:
    lost, too_many = 0, 0
    for seed in range(1, 21):
        problem = run_one(draw_scenario(seed, name="none")).problem
        lost += problem.startswith("lost") and not problem.startswith("lost 0")
        too_many += problem.endswith("too many") and not problem.endswith(" 0 too many")
    assert lost
    assert too_many


def _trace(seed: int) -> str:
    """Return the trace of a seed, without the random name of its temporary directory."""
    lines: list[str] = []
    Simulation(draw_scenario(seed), lines.append).run()
    assert len(lines) > 20
    return re.sub(r"driftline-simulation-\w+", "directory", "\n".join(lines))


def test_seed_determines_the_trace_in_every_process() -> None:
    """Traces do not depend on hash(), which differs between processes."""
    code = (
        "from tests.simulation.test_simulation import _digest\n"
        "print(_digest(range(1, 5)))\n"
    )  # fmt: skip
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(printed) == 1


def _digest(seeds: range) -> str:
    return sha256("".join(map(_trace, seeds)).encode()).hexdigest()


def test_tracing_does_not_change_the_outcome() -> None:
    what = draw_scenario(5)
    assert Simulation(what, lambda line: None).run() == Simulation(what).run()


# The command ----------------------------------------------------------------------------------


def test_the_command_counts_seeds_and_faults() -> None:
    result = CliRunner().invoke(simulate, ["--all", "--seeds", "5", "--json", os.devnull])
    assert result.exit_code == 0, result.output
    assert "\n5 seeds passed: " in result.output
    assert "committed snapshot" in result.output


def test_the_command_says_how_to_repeat_a_failure() -> None:
    flow = "tests.mutations.flows:drifting"
    result = CliRunner().invoke(simulate, [flow, "--seeds", "2"])
    assert result.exit_code == 1
    assert f"driftline simulate {flow} --seed 1 --policy exactly-once" in result.output
    assert "Traceback" not in result.output


def test_the_command_traces_one_seed() -> None:
    flow = SIMULATED[0].spec
    result = CliRunner().invoke(simulate, [flow, "--seed", "3", "--trace"])
    assert "Hello" in result.output
    assert "front-0#1 -> node-" in result.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "either a FLOW or --all"),
        (["driftline.index", "--all"], "either a FLOW or --all"),
        (["no_such_module"], "no flow 'no_such_module'"),
        (["driftline.index", "--trace"], "--trace needs --seed"),
        ([SIMULATED[1].spec, "--policy", "two-phase"], "may depend on the order"),
    ],
)
def test_command_explains_unsupported_arguments(arguments: list[str], reason: str) -> None:
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())


def test_elements_whose_function_raises_are_reported(tmp_path: Path) -> None:
    flow = tmp_path / "picky.py"
    flow.write_text(
        "from driftline import Flow\n\n"
        "flow = Flow('picky')\n"
        "flow.source('records').map(lambda record: 1 // record['n'], name='divide').sink()\n"
    )
    records = tmp_path / "records.jsonl"
    records.write_text("".join(f'{{"n": {n % 3}}}\n' for n in range(60)))
    result = CliRunner().invoke(simulate, [str(flow), "--input", str(records), "--seeds", "2"])
    assert result.exit_code == 0, result.output
    assert "elements fail, the first in operator 'divide': ZeroDivisionError" in result.output


BAD = '{"id": 1, "key": "a", "text": "b"}\n{"id": \n{"id": 3, "key": "a", "text": "c"}\n'


def test_bad_record_stops_the_command_and_the_error_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(BAD)
    arguments = [SIMULATED[0].spec, "--input", str(tmp_path / "in.jsonl"), "--seeds", "2"]
    stopped = CliRunner().invoke(simulate, arguments)
    assert isinstance(stopped.exception, InputError)
    assert stopped.exception.record == 2
    assert "--on-error dead-letter" in str(stopped.exception)
    done = CliRunner().invoke(simulate, [*arguments, "--on-error", "dead-letter"])
    assert done.exit_code == 0, done.output
    assert "1 bad record of" in done.stderr
    assert "in.jsonl, record 2: " in done.stderr
