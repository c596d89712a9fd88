"""`simulate`: correct flows pass under every fault, and wrong flows are found and reported."""

from __future__ import annotations

from math import nan

import pytest

from driftline import Flow, FlowError, SimulationFailed, simulate
from driftline.engine.errors import InputError
from tests.api.flows import ORDERS, order_payment_flow, running_totals

PAIRED: dict[str, list[object]] = {
    "payments": [{"id": "abc"[n % 3], "n": n} for n in range(20)],
    "orders": [{"id": "abc"[n * n % 3], "n": n} for n in range(30)],
}


def forgetful() -> Flow:
    """Return a flow that keeps a count outside of its states, which recoveries do not restore."""
    counts: dict[str, int] = {}

    def count(order: dict[str, str]) -> int:
        counts[order["who"]] = counts.get(order["who"], 0) + 1
        return counts[order["who"]]

    flow = Flow("forgetful")
    flow.source("orders").map(count, name="count").sink()
    return flow


def test_correct_flow_passes_and_the_report_counts_faults() -> None:
    report = simulate(order_payment_flow(), PAIRED, seeds=12)
    assert report.seeds == 12
    assert any(what.startswith("crash node") for what in report.faults)
    assert all(count > 0 for count in report.faults.values())
    assert not any(what.startswith("delivered") for what in report.faults)


def test_a_wrong_flow_is_found_and_its_seed_repeats_it() -> None:
    with pytest.raises(SimulationFailed) as error:
        simulate(forgetful(), [ORDERS], seeds=30)
    found = error.value
    text = str(found)
    assert f"flow 'forgetful' fails under the faults of seed {found.seed} (" in text
    assert f"simulate(flow, inputs, seeds=range({found.seed}, {found.seed + 1}))" in text
    with pytest.raises(SimulationFailed) as again:
        simulate(forgetful(), [ORDERS], seeds=range(found.seed, found.seed + 1))
    assert again.value.seed == found.seed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 0}, "at least one seed"),
        ({"policy": "two-phase"}, "cannot be simulated with two-phase: its outputs may depend"),
        ({"policy": "exactly-twice"}, "unknown policy 'exactly-twice'"),
    ],
)
def test_invalid_simulation_arguments_are_rejected(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(FlowError) as error:
        simulate(running_totals(), [ORDERS], **arguments)  # type: ignore[arg-type]
    assert message in str(error.value)


def test_records_with_nan_pass() -> None:
    flow = Flow("same")
    flow.source("numbers").sink()
    assert simulate(flow, [[1.5, nan, (1, nan)]], seeds=10).seeds == 10


def test_unsuitable_records_are_rejected() -> None:
    with pytest.raises(
        FlowError, match="totals has no outputs in the simulation, as functions raise"
    ):
        simulate(running_totals(), [[{"name": "Ann"}]])
    with pytest.raises(FlowError, match="has more than 10,000 records: simulate some of them"):
        simulate(running_totals(), [iter(ORDERS * 251)])
    with pytest.raises(InputError, match="source 'orders', record 2"):
        simulate(running_totals(), [[{"who": "Ann", "price": 1}, object()]])
    with pytest.raises(FlowError, match="no input for orders"):
        simulate(running_totals(), {})
