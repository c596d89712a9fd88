"""Approximate aggregates keep their error bounds, and depend on no order, seed or machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from driftline import ApproximateCountDistinct, Quantile
from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.aggregates import Aggregate
from driftline.engine.operators.windows import Session, Tumbling, Windows
from driftline.engine.reference import run_reference
from driftline.engine.wire.codec import canonical_bytes, round_trip
from tests.engine.operators.test_timed import by_sink, record_lists, run_killed

ROOT = Path(__file__).resolve().parents[3]

POSITIVE = (
    st.floats(1e-300, 1e300)
    | st.floats(0.5, 20)
    | st.integers(1, 100)
    | st.sampled_from(
        [1, 2.0, 0.5, 1 - 2**-53, 2 - 2**-52, 4096, 2**64 - 1, 1.7976931348623157e308]
    )
)
NUMBERS = (
    POSITIVE | POSITIVE.map(lambda number: -min(number, 2**63)) | st.sampled_from([0, 0.0, -0.0])
)
ANY = st.sampled_from([0, 0.0, False, "", b"", None, (), 1, True, 1.0]) | st.integers(0, 60)
ERRORS = st.sampled_from([0.0001, 0.003, 0.01, 0.1, 0.5])


def folded(aggregate: Aggregate, values: Sequence[object]) -> bytes:
    """Return the accumulator; it travels after each element, as in a snapshot."""
    accumulator = aggregate.zero()
    for value in values:
        accumulator = round_trip(aggregate.add(accumulator, value))
    assert isinstance(accumulator, bytes)
    return accumulator


@given(st.lists(NUMBERS, min_size=1, max_size=40), st.floats(0, 1), ERRORS)
@example([1.0], 0, 0.5)
@example([3, 5, 7], 1, 0.01)
def test_quantile_is_within_the_relative_error(
    values: list[float], quantile: float, error: float
) -> None:
    aggregate = Quantile(quantile, error=error)
    found = aggregate.result(folded(aggregate, values))
    expected = sorted(values)[int(quantile * (len(values) - 1))]
    assert type(found) is float
    assert abs(found - expected) <= error * abs(expected) * (1 + 1e-12)


@given(st.floats(5e-324, 1e-300), st.booleans())
def test_quantile_of_a_tiny_value_keeps_its_sign_and_its_order(
    value: float, negative: bool
) -> None:
    value = -value if negative else value
    median = Quantile(0.5)
    found = median.result(folded(median, [value]))
    assert abs(found - value) <= 0.01 * abs(value) + 5e-324
    assert (found < 0) == negative
    assert found != 0


SKETCHES: dict[str, tuple[Callable[[float], Aggregate], st.SearchStrategy[Any]]] = {
    "distinct": (lambda error: ApproximateCountDistinct(error=max(error / 2, 0.005)), ANY),
    "quantile": (lambda error: Quantile(0.5, error=error), NUMBERS),
}


@pytest.mark.parametrize("name", SKETCHES)
@given(data=st.data(), error=ERRORS)
def test_accumulator_depends_on_the_elements_only(
    name: str, data: st.DataObject, error: float
) -> None:
    make, elements = SKETCHES[name]
    aggregate = make(error)
    values = data.draw(st.lists(elements, max_size=60))
    expected = folded(aggregate, values)
    assert folded(aggregate, data.draw(st.permutations(values))) == expected
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=4)))
    parts = [
        folded(aggregate, values[start:end]) for start, end in pairwise([0, *cuts, len(values)])
    ]
    merged = aggregate.zero()
    for part in data.draw(st.permutations(parts)):
        merged = round_trip(aggregate.merge(merged, part))
    assert merged == expected


@given(st.lists(ANY, max_size=80))
def test_few_values_are_counted_exactly(values: list[Any]) -> None:
    distinct = ApproximateCountDistinct()
    assert distinct.result(folded(distinct, values)) == len({*map(canonical_bytes, values)})


def test_default_error_counts_2047_values_exactly_in_at_most_16_kib() -> None:
    distinct = ApproximateCountDistinct()
    accumulator = folded(distinct, range(2047))
    assert distinct.result(accumulator) == 2047
    for value in range(4000):
        accumulator = distinct.add(accumulator, value)
    assert len(accumulator) == 16 * 1024
    assert distinct.result(accumulator) == pytest.approx(4000, rel=0.03)


@pytest.mark.parametrize("number", [300, 1300])
def test_standard_error_of_the_count_is_as_promised(number: int) -> None:
    distinct = ApproximateCountDistinct(error=0.05)
    errors = []
    for run in range(40):
        accumulator = distinct.zero()
        for value in range(number):
            accumulator = distinct.add(accumulator, (run, value))
        errors.append(distinct.result(accumulator) / number - 1)
    assert fmean(error * error for error in errors) ** 0.5 <= 0.055
    assert abs(fmean(errors)) <= 0.02, "no bias: 2.5 standard errors of the mean"


def test_large_counts_follow_from_the_registers() -> None:
    """The registers have the ranks that are expected after more values than a test can add."""
    distinct = ApproximateCountDistinct(error=0.01)
    for power in range(20, 45):
        number = 2.0**power
        per_register = number / distinct.registers
        registers, up_to = bytearray(), 0.0
        for rank in range(distinct.rest_bits + 2):
            share = exp(-per_register / 2.0**rank) if rank <= distinct.rest_bits else 1.0
            registers += bytes([rank]) * (
                round(share * distinct.registers) - round(up_to * distinct.registers)
            )
            up_to = share
        assert len(registers) == distinct.registers
        assert distinct.result(bytes(registers)) == pytest.approx(number, rel=0.01)


# Determinism. ------------------------------------------------------------------------------------

DIGEST = """
from hashlib import sha256
from driftline import ApproximateCountDistinct, Quantile

digest = sha256()
for aggregate in ApproximateCountDistinct(error=0.1), Quantile(0.9), Quantile(0.5, error=0.003):
    accumulator = aggregate.zero()
    for number in range(400):
        value = (number * 7919 % 1009 - 300) / 7
        accumulator = aggregate.add(accumulator, value)
    other = aggregate.add(aggregate.zero(), 10**9)
    accumulator = aggregate.merge(accumulator, other)
    digest.update(accumulator + repr(aggregate.result(accumulator)).encode())
print(digest.hexdigest())
"""


@pytest.mark.parametrize("seed", ["0", "1", "4294967295"])
def test_results_are_the_same_in_each_process_and_on_each_machine(seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIGEST],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == EXPECTED_DIGEST


EXPECTED_DIGEST = "33e1c2382e211e90ba1a9b8b547be2ce0e964647ef7fa8c8bfaa36b6fae9f55d"
"""If this changes, stored states of earlier versions yield other results."""


# In a flow. --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "windows", [Tumbling(20), Session(6)], ids=lambda windows: type(windows).__name__
)
@settings(max_examples=15)
@given(
    records=record_lists(40),
    emit=st.sampled_from(["final", "updates"]),
    nodes=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_kill_leaves_sketches_as_the_reference_has_them(
    windows: Windows, records: list[dict[str, Any]], emit: str, nodes: int, seed: int
) -> None:
    flow = Flow("sketches")
    windowed = flow.source("views", event_time="at", max_delay=12).key_by("user").window(windows)
    windowed.aggregate(
        emit=emit,
        ids=ApproximateCountDistinct("id", error=0.25),  # exact up to 3 values
        users=ApproximateCountDistinct("user"),
        median=Quantile(0.5, "id"),
        latest=Quantile(1, lambda record: record["at"], error=0.1),
    ).sink("rows")
    kills = {len(records) // 3: "node-0", 2 * len(records) // 3: "node-0"}
    expected = by_sink(flow, run_reference(flow, [records]))
    assert run_killed(flow, records, nodes, kills, seed) == expected


# Errors. -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Quantile(99), "^Quantile: quantile is 99; give a number from 0 to 1$"),
        (lambda: Quantile("p99"), "Quantile: quantile is 'p99'"),  # type: ignore[arg-type]
        (lambda: Quantile(True), "Quantile: quantile is True"),
        (lambda: Quantile(float("nan")), "Quantile: quantile is nan"),
        (lambda: Quantile(0.5, error=0), "Quantile: error is 0; give a number from 0.0001 to 0.5"),
        (lambda: Quantile(0.5, 1.5), r"Quantile\(1.5\): give a field's name"),  # type: ignore[arg-type]
        (
            lambda: ApproximateCountDistinct("user", error=0.001),
            "ApproximateCountDistinct: error is 0.001; give a number from 0.005 to 0.25",
        ),
    ],
)
def test_invalid_argument_is_named_in_the_error(make: Callable[[], object], text: str) -> None:
    with pytest.raises(FlowError, match=text):
        make()


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ("1", TypeError, "Quantile of '1', which is not a number"),
        (None, TypeError, "Quantile of None, which is not a number"),
        (float("inf"), ValueError, "Quantile of inf, which is not finite"),
        (float("nan"), ValueError, "Quantile of nan, which is not finite"),
    ],
)
def test_quantile_of_no_finite_number_names_the_value(
    value: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        Quantile(0.5).add(b"", value)
