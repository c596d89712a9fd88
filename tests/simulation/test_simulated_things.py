"""Parts of the simulated world: its test doubles behave like the real parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from driftline.acker.tracker import ReportedProgress
from driftline.connectors.logs.inputlog import InputLog, LoggedRecord, WriteGroup
from driftline.deploy.graph import as_text
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.registry import OPERATORS
from driftline.engine.policy import get_policy
from driftline.engine.reference import run_reference
from driftline.engine.state.managed import ListState, MapState, ReducingState, ValueState
from driftline.simulation.command import simulate
from driftline.simulation.scenarios.disturbances import SlowFunctions
from driftline.simulation.scenarios.drawn import draw_flow
from driftline.simulation.scenarios.flows import SimulatedFlow, concatenation, records
from driftline.simulation.scenarios.inputs import GivenRecords
from driftline.simulation.scenarios.scenario import draw_scenario, without_faults
from driftline.simulation.seeds import run_one
from driftline.simulation.simulation import Simulation
from driftline.simulation.verdict import Damages
from driftline.simulation.world.disks import LogDisk, MasterDisk, NodeDisk, flipped
from driftline.simulation.world.timeline import Faults, Timeline
from tests.connectors.logs.received_front import memory_disk

# The input log --------------------------------------------------------------------------------


def _group(chance: Random, after: int, sequences: Counter[str], ended: list[str]) -> WriteGroup:
    entries = []
    for _ in range(chance.randrange(8)):
        after += chance.randrange(1, 5)
        producer = chance.choice([name for name in "pqr" if name not in ended])
        sequences[producer] += 1
        entries.append(LoggedRecord(after, producer, sequences[producer], chance.randbytes(5)))
    ends = [name for name in "qr" if sequences[name] and chance.random() < 0.1]
    ends = [name for name in ends if name not in ended]
    ended += ends
    return WriteGroup(
        tuple(entries),
        after + chance.randrange(5),
        chance.randrange(after + 2),
        tuple((name, sequences[name]) for name in ends),
    )


@pytest.mark.parametrize("seed", range(20))
def test_simulated_input_log_behaves_like_the_real_one(seed: int) -> None:
    chance = Random(seed)
    with memory_disk() as directory:
        real, double = InputLog(directory / "log", "me"), LogDisk("log")
        sequences: Counter[str] = Counter()
        ended: list[str] = []
        time = trim = 0
        for _ in range(12):
            group = _group(chance, time, sequences, ended)
            trim = max(trim, group.trim)
            group = replace(group, trim=trim)  # a source's trim never decreases
            time = group.entries[-1].time if group.entries else time
            for log in (real, double):
                log.execute_job(group)
            assert double.sequences() == real.sequences() == dict(sequences)
            assert sorted(double.ended()) == sorted(real.ended()) == sorted(ended)
            assert (double.reserved, double.trimmed) == (real.reserved, real.trimmed)
            assert double.last_time == real.last_time
            for limit in (-1, 3):
                start = chance.randrange(time + 2)
                assert double.read(start, limit) == real.read(start, limit)
        real.close()


def test_bit_flip_in_the_simulated_input_log_is_detected() -> None:
    for seed in range(50):
        log = LogDisk("the log")
        log.execute_job(WriteGroup((LoggedRecord(1, "p", 1, b"data"),), 2, 0))
        log.flip_bit(Random(seed))
        with pytest.raises(StateMismatch, match="the log is damaged"):
            log.read(1)


# Damage ---------------------------------------------------------------------------------------


def _damages(*, hit: str) -> Damages:
    counted: Counter[str] = Counter()
    registry, node = MasterDisk(counted), NodeDisk("node-1", concatenation, counted)
    timeline = Timeline(Random(1), Faults(until_s=1.0, bit_flip=10.0))
    damages = Damages(timeline, registry)
    if hit == "node":
        node.kv.data[bytes(10)] = b"part"
        damages.maybe_damage(node)
    elif hit == "registry":
        registry.data = b"state"
        damages.maybe_damage(registry)
    return damages


def test_only_unrecoverable_damage_excuses_a_stopped_run() -> None:
    exactly, two_phase = get_policy("exactly-once"), get_policy("two-phase")
    named = "SnapshotDamaged: node-1: snapshot 3 is damaged"
    assert not _damages(hit="").excuses(named, exactly, given_input=False)
    assert _damages(hit="node").excuses(named, exactly, given_input=False)
    assert not _damages(hit="node").excuses(named, exactly, given_input=True)
    assert _damages(hit="node").excuses(named, two_phase, given_input=True)
    registry = "StateMismatch: registry x is damaged"
    assert _damages(hit="registry").excuses(registry, exactly, given_input=True)
    assert not _damages(hit="registry").excuses(named, exactly, given_input=True)
    wrong = "NotDeterministic: node-1 gave other outputs"
    assert not _damages(hit="node").excuses(wrong, exactly, given_input=False)


def test_damage_flips_one_bit() -> None:
    before, after = b"some bytes", flipped(b"some bytes", Random(3))
    assert sum((a ^ b).bit_count() for a, b in zip(before, after, strict=True)) == 1


# Liveness, slow functions -----------------------------------------------------------------------


def test_run_without_progress_reports_what_it_waits_for() -> None:
    what = without_faults(
        replace(
            draw_scenario(2, "driftline.simulation.scenarios.flows:counts"), slow_functions=None
        )
    )
    with patch.object(ReportedProgress, "delivered", 0):
        outcome = run_one(what)
    assert "makes no progress" in outcome.problem
    assert "running" in outcome.problem
    assert outcome.virtual_s < 30


def test_slow_functions_take_virtual_time_and_change_nothing() -> None:
    what = without_faults(
        replace(
            draw_scenario(4, "driftline.simulation.scenarios.flows:counts"), slow_functions=None
        )
    )
    quick, slow = (
        run_one(what),
        run_one(replace(what, slow_functions=SlowFunctions(one_in=3, seconds=0.02))),
    )
    assert (quick.problem, slow.problem) == ("", "")
    assert not quick.counted["slow turn of node"]
    assert slow.counted["slow turn of node"] > 3
    assert slow.virtual_s > quick.virtual_s


# Random flows -----------------------------------------------------------------------------------


def _outputs(flow: Flow, seed: int) -> list[object]:
    inputs = [records(Random(seed), 40, i) for i in range(len(flow.sources))]
    return [i.value for i in run_reference(flow, inputs, dead_letters=True)]


def test_drawn_flows_cover_all_operators_and_states() -> None:
    flows = [draw_flow(seed) for seed in range(60)]
    vertices = [vertex for flow in flows for vertex in flow.vertices]
    assert {type(vertex.operator) for vertex in vertices} == {*OPERATORS}
    states = {type(state) for vertex in vertices for state in vertex.states}
    assert states == {ValueState, ReducingState, ListState, MapState}
    assert {len(flow.sources) for flow in flows} == {1, 2, 3}
    assert {sum(v.is_keyed for v in flow.vertices) for flow in flows} >= {1, 2, 3}
    assert any(len(flow.successors(v.number)) > 1 for flow in flows for v in flow.vertices)
    assert sum(bool(_outputs(flow, 1)) for flow in flows) > 55


def test_seed_determines_the_drawn_flow() -> None:
    for seed in range(20):
        assert as_text(draw_flow(seed)) == as_text(draw_flow(seed))
        assert _outputs(draw_flow(seed), 2) == _outputs(draw_flow(seed), 2)


def test_unordered_drawn_flows_have_order_independent_labels() -> None:
    for seed in range(100):
        keyed = [v.number for v in draw_flow(seed, any_order=True).vertices if v.is_keyed]
        after = [v for v in draw_flow(seed, any_order=True).vertices if v.number >= keyed[0]]
        assert not any(vertex.operator.emits_many for vertex in after)


def test_failure_of_a_drawn_flow_shows_the_flow() -> None:
    with patch("driftline.simulation.simulation.judge", lambda *_: "wrong"):
        result = CliRunner().invoke(
            simulate, ["driftline.simulation.scenarios.drawn", "--seed", "3"]
        )
    assert result.exit_code == 1
    assert (
        "driftline simulate driftline.simulation.scenarios.drawn --seed 3 --policy" in result.output
    )
    assert "flow drawn-3:" in result.output


# Records of files -------------------------------------------------------------------------------

OF_ORDERS = """
from driftline import Flow, ValueState

def total(order, spent):
    spent.set(spent.get(0) + order["amount"])
    return order["customer"], spent.get()

flow = Flow("orders")
flow.source("orders").key_by("customer").scan(total, ValueState("spent")).sink()
"""


def test_a_flow_is_simulated_on_records_of_a_file(tmp_path: Path) -> None:
    flow, file = tmp_path / "orders.py", tmp_path / "orders.csv"
    flow.write_text(OF_ORDERS)
    lines = [f'{{"customer": "c{i % 3}", "amount": {i}}}' for i in range(300)]
    file = tmp_path / "orders.jsonl"
    file.write_text("\n".join(lines))
    from_file = CliRunner().invoke(simulate, [str(flow), "--input", str(file), "--seeds", "5"])
    assert from_file.exit_code == 0, from_file.output
    made_up = CliRunner().invoke(simulate, [str(flow), "--seeds", "5"])
    assert made_up.exit_code == 2
    assert "--input FILE draws records from a file" in " ".join(made_up.output.split())


def test_outputs_in_files_may_hold_every_character_that_ends_a_line() -> None:
    flow = Flow("odd")
    flow.source("numbers").map(lambda n: f"{n}\u2028\u2029\x85\x0b\x0c\x1c\r\n").sink()
    simulated = SimulatedFlow(flow.name, order_independent=False, flow=flow)
    drawn = draw_scenario(1, simulated, files=GivenRecords([list(range(20))]))
    assert run_one(replace(drawn, sink="files")).problem == ""


def test_the_records_of_a_seed_are_always_the_same_and_in_their_order(tmp_path: Path) -> None:
    from driftline.simulation.scenarios.inputs import InputFiles

    file = tmp_path / "some.jsonl"
    file.write_text("\n".join(f'{{"n": {i}}}' for i in range(500)))
    files = InputFiles((str(file),))
    what = draw_scenario(3, "driftline.index", None, files)
    one, other = Simulation(what).inputs, Simulation(what).inputs
    assert one == other
    [drawn_records] = one
    numbers = [record["n"] for record in drawn_records if isinstance(record, dict)]
    assert numbers == sorted(numbers)
    assert len(numbers) == what.records
    assert what.command.endswith(f"--input {file}")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--all", "--input", "x"], "--input needs a FLOW"),
        (
            ["driftline.simulation.scenarios.flows:two_fronts", "--input", "x"],
            "has 2 sources",
        ),
    ],
)
def test_command_explains_invalid_inputs(arguments: list[str], reason: str) -> None:
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())
