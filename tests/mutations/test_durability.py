"""Disk failures, with one safeguard removed at a time: the trial that passes must then fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from driftline.barrier.barrier import NO_T_LAST, Barrier
from driftline.barrier.unordered import EpochBarrier
from driftline.coordinator.registry import ClusterState
from driftline.deploy.local.directories import survey
from driftline.deploy.local.directories.survey import DirectoryReport, Problem
from driftline.engine.errors import DriftlineError, SnapshotDamaged, StateMismatch, Unavailable
from driftline.engine.snapshots.jobs import LoadSnapshot, MergeParts
from driftline.engine.snapshots.store import LmdbStore, PartStore
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.engine.wire.role import IOJob
from tests.deploy.local.directories import test_survey
from tests.engine.snapshots import test_store
from tests.engine.snapshots.tables import FLOW, UnsteadyStore, fill

Mutation = Callable[[], AbstractContextManager[object]]


def merges_include_the_fallback() -> AbstractContextManager[object]:
    """Merge parts up to the number before the committed one, whichever that is."""
    go_on = PartStore._continue_merge
    return patch.object(
        PartStore,
        "_continue_merge",
        lambda self, job: go_on(self, MergeParts(job.number, job.number - 1, job.merge_all)),
    )


@contextmanager
def failed_read_counts_as_damage() -> Iterator[None]:
    """Treat a failed read as damage."""
    execute_job = PartStore.execute_job

    def mutated(self: PartStore, job: IOJob) -> object:
        try:
            return execute_job(self, job)
        except Unavailable as error:
            raise SnapshotDamaged(str(error)) from None

    with patch.object(PartStore, "execute_job", mutated):
        yield


def lost_newest_part_is_ignored() -> AbstractContextManager[object]:
    """Count only parts that are present when looking for the newest."""
    return patch.object(PartStore, "newest", lambda self: max(self._sizes, default=0))


def snapshot_incarnation_is_not_compared() -> AbstractContextManager[object]:
    """Accept any snapshot with the same number."""
    execute_job = PartStore._load
    return patch.object(
        PartStore, "_load", lambda self, number, taken=None: execute_job(self, number)
    )


def directories_have_no_owner() -> AbstractContextManager[object]:
    """Open a directory of any owner."""
    return patch.object(DirectoryOwner, "supersede", lambda self, before, where: self)


def consumer_progress_is_not_compared() -> AbstractContextManager[object]:
    """Accept a consumer whose outputs are behind the state."""
    forgotten = property(lambda self: NO_T_LAST, lambda self, expected: None)
    return patch.object(Barrier, "expected_t_last", forgotten, create=True)


def epochs_may_be_ahead_of_the_registry() -> AbstractContextManager[object]:
    """Accept a consumer with outputs of epochs that were never committed."""
    return patch.object(EpochBarrier, "handle_last_bundle", Barrier.handle_last_bundle)


def _without(rule: str) -> Mutation:
    def mutation() -> AbstractContextManager[object]:
        return patch.object(survey._Rules, rule, lambda self, here: None)

    mutation.__name__ = f"no{rule}"
    return mutation


@contextmanager
def missing_registry_counts_as_new() -> Iterator[None]:
    """Treat a missing registry as new, whatever else exists."""

    def mutated(policy: object, registry: str, state: ClusterState | None, found: object) -> object:
        return [] if state is None else problems(policy, registry, state, found)  # type: ignore[arg-type]

    problems = survey.problems
    with patch.object(test_survey, "problems", mutated):
        yield


# Trials ---------------------------------------------------------------------------------------


def check_consumer_that_lost_outputs(_: Path) -> None:
    barrier = EpochBarrier("barrier-0", (0, 1))
    barrier.restore(7, ())
    barrier.expected_t_last = 7
    with pytest.raises(StateMismatch, match="has outputs up to epoch 5, but"):
        barrier.handle_last_bundle(5, 0, ())


def check_consumer_that_is_ahead(_: Path) -> None:
    barrier = EpochBarrier("barrier-0", (0, 1))
    barrier.restore(7, ())
    with pytest.raises(StateMismatch, match="only 7 epochs"):
        barrier.handle_last_bundle(8, 0, ())


def check_replaced_store(path: Path) -> None:
    LmdbStore(path, "me", DirectoryOwner("mine", "node-0", 1)).close()
    for other in (DirectoryOwner("mine", "node-1", 1), DirectoryOwner("other", "node-0", 1)):
        with pytest.raises(StateMismatch, match=r"node-0 of run mine"):
            LmdbStore(path, "me", other).close()


def check_fallback_is_kept(_: Path) -> None:
    test_store.test_fallback_snapshot_is_kept_while_later_ones_are_abandoned()


def check_disk_that_does_not_respond(_: Path) -> None:
    kv = UnsteadyStore("memory")
    store = PartStore(kv, FLOW)
    fill(store, range(1, 4))
    kv.failing = True
    with pytest.raises(Unavailable):
        store.execute_job(LoadSnapshot(3))


def check_missing_newest_part(_: Path) -> None:
    test_store.test_damaged_newest_snapshot_is_rejected(None, True)


def check_old_copy(_: Path) -> None:
    test_store.test_abandoned_snapshot_is_not_loaded_for_a_reused_number()


def check_rejected(report: DirectoryReport, policy: str = "two-phase") -> Callable[[Path], None]:
    def trial(_: Path) -> None:
        problems: list[Problem] = test_survey.problems_of(policy, report)
        assert problems

    return trial


def check_missing_registry(_: Path) -> None:
    assert test_survey.problems_of("two-phase", state=None)


CASES: list[tuple[Mutation, Callable[[Path], None]]] = [
    (merges_include_the_fallback, check_fallback_is_kept),
    (failed_read_counts_as_damage, check_disk_that_does_not_respond),
    (lost_newest_part_is_ignored, check_missing_newest_part),
    (snapshot_incarnation_is_not_compared, check_old_copy),
    (directories_have_no_owner, check_replaced_store),
    (consumer_progress_is_not_compared, check_consumer_that_lost_outputs),
    (epochs_may_be_ahead_of_the_registry, check_consumer_that_is_ahead),
    (missing_registry_counts_as_new, check_missing_registry),
    (
        _without("_check_owner"),
        check_rejected(test_survey.report_on("node-0", owner=DirectoryOwner("x", "node-0", 2))),
    ),
    (_without("_check_session"), check_rejected(test_survey.report_on("output-0", owner=None))),
]


@pytest.mark.parametrize(
    ("mutation", "trial"), CASES, ids=[mutation.__name__ for mutation, _ in CASES]
)
def test_trial_fails_without_each_durability_safeguard(
    mutation: Mutation, trial: Callable[[Path], None], tmp_path: Path
) -> None:
    trial(tmp_path / "right")
    with mutation(), pytest.raises((AssertionError, DriftlineError, pytest.fail.Exception)):
        trial(tmp_path / "mutated")
