"""Each protection of users from their own functions is needed: a seed fails without it."""

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


def values_are_stored_without_a_copy() -> AbstractContextManager[object]:
    """Let a state keep a dict that the function changes later."""
    return patch.object(driftline.engine.operators.keyed, "can_stay_unfrozen", lambda *_: True)


def arguments_are_kept_without_a_copy() -> AbstractContextManager[object]:
    """Apply elements again with arguments that the function has changed."""
    return patch.object(driftline.engine.operators.keyed, "freeze_arguments", lambda values: values)


def results_are_kept_without_a_copy() -> AbstractContextManager[object]:
    """Retract outputs that the next function has changed."""
    return patch.object(
        driftline.engine.operators.keyed,
        "freeze_outputs",
        lambda values, *_: values,
    )


def branches_share_their_elements() -> AbstractContextManager[object]:
    """Let branches see each other's changes."""
    return patch.object(driftline.engine.operators.steps, "copy_outputs", lambda values: values)


def keys_are_computed_before_encoding() -> AbstractContextManager[object]:
    """Compute the key before the element is encoded; the key function may change the element."""

    def mutated(self: Shuffle, values: list[object]) -> list[int]:
        return self.owners.owners_of(list(map(self.key, values)))

    return patch.object(Shuffle, "_owners", mutated)


CASES: list[tuple[Mutation, str]] = [
    (values_are_stored_without_a_copy, "mutable_value"),
    (values_are_stored_without_a_copy, "types"),
    (arguments_are_kept_without_a_copy, "changed_argument"),
    (results_are_kept_without_a_copy, "changed_and_raised"),
    (branches_share_their_elements, "branches"),
    (keys_are_computed_before_encoding, "changed_by_key"),
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
