"""What protects users from their own functions is needed: a seed finds what goes wrong without."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import pytest

import driftline.engine.operators.keyed
import driftline.engine.operators.steps
from driftline.engine.operators.outputs import Shuffle
from driftline.simulation.scenarios.scenario import draw_scenario
from driftline.simulation.seeds import run_one
from tests.careless.flows import ALL

SEEDS_MAX = 200

Mutation = Callable[[], AbstractContextManager[object]]


def values_are_kept_as_they_are_put() -> AbstractContextManager[object]:
    """A state keeps a dict that the function goes on to change."""
    return patch.object(driftline.engine.operators.keyed, "can_stay_unfrozen", lambda *_: True)


def arguments_are_kept_as_they_were_given() -> AbstractContextManager[object]:
    """What is applied again is what the function has changed."""
    return patch.object(driftline.engine.operators.keyed, "freeze_arguments", lambda values: values)


def results_are_kept_as_they_were_sent() -> AbstractContextManager[object]:
    """What is taken back is what the next function has changed."""
    return patch.object(
        driftline.engine.operators.keyed,
        "freeze_outputs",
        lambda values, *_: values,
    )


def branches_share_what_they_get() -> AbstractContextManager[object]:
    """A branch sees what another one has changed."""
    return patch.object(driftline.engine.operators.steps, "copy_outputs", lambda values: values)


def keys_are_those_of_what_leaves() -> AbstractContextManager[object]:
    """The key is that of the element before it travels, and its function may change it."""

    def mutated(self: Shuffle, values: list[object]) -> list[int]:
        return self.owners.owners_of(list(map(self.key, values)))

    return patch.object(Shuffle, "_owners", mutated)


CASES: list[tuple[Mutation, str]] = [
    (values_are_kept_as_they_are_put, "mutable_value"),
    (values_are_kept_as_they_are_put, "types"),
    (arguments_are_kept_as_they_were_given, "changed_argument"),
    (results_are_kept_as_they_were_sent, "changed_and_raised"),
    (branches_share_what_they_get, "branches"),
    (keys_are_those_of_what_leaves, "changed_by_key"),
]


@pytest.mark.parametrize(
    ("mutation", "flow"), CASES, ids=[f"{case[0].__name__}-{case[1]}" for case in CASES]
)
def test_simulation_finds_each_mutation(mutation: Mutation, flow: str) -> None:
    for seed in range(1, SEEDS_MAX + 1):
        what = draw_scenario(seed, ALL[flow])
        with mutation():
            problem = run_one(what).problem
        if problem:
            assert not run_one(what).problem
            return
    pytest.fail(f"not found within {SEEDS_MAX} seeds")
