"""The checks of `driftline verify` that only a service's state directory needs.

They read the entire journal and the checkpoints of views, and change no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster.zookeeper_tree import FLOWS
from driftline.deploy.local.directories.inspection import inspect_directories
from driftline.deploy.local.directories.survey import VIEW, DirectoryReport, Problem
from driftline.deploy.local.report import EndStatus, end_status_of
from driftline.deploy.local.verify import ServiceContents
from driftline.engine.durable import translate_os_errors
from driftline.engine.errors import DriftlineError, SnapshotDamaged, Unavailable
from driftline.engine.texts import counted
from driftline.serve.hosting.config import JOURNAL as JOURNAL_FOLDER
from driftline.serve.hosting.view_process import CHECKPOINT, RETENTION_NOTES
from driftline.serve.journal.entries import oldest_retained_time
from driftline.serve.running.deployment import SERVICE_FILE
from driftline.serve.running.directories import RECOVERY_ADVICE, RESTORE_ADVICE, report_on_journal
from driftline.serve.views.checkpoint import read_parts

CheckFiles = Callable[[Path, Iterable[bytes]], int]
"""Function that checks the other files in the directory of a view, given the checkpoint's parts.

Returns the number of files. Raises SnapshotDamaged, OSError; Unavailable if it cannot check them.
"""

_VIEW_FILES = CHECKPOINT, RETENTION_NOTES
"""Names of files; a directory that contains one of them is the directory of a view."""

_REBUILT = "it is rebuilt from the journal at the next start"
_NOT_REBUILT = f"it cannot be rebuilt, as the journal has dropped its beginning: {RESTORE_ADVICE}"
"""The effects of a view's damage, for its report."""


def inspect_service(
    state: Path,
    run: ClusterState | None,
    *,
    check_files: CheckFiles,
    check_definition: Callable[[Path], None],
) -> ServiceContents | None:
    """Return a report on a service's parts of a state directory; None if no service uses it.

    `run`: the contents of the registry; `check_files`: checks the files of a view;
    `check_definition`: checks the definition of the service, and raises DriftlineError. Raises
    Unavailable.
    """
    journal_path = state / JOURNAL_FOLDER
    with translate_os_errors("state directory", state):
        views = sorted({path.parent for name in _VIEW_FILES for path in state.glob(f"*/{name}")})
        has_journal = journal_path.is_dir()
    is_of_service = run is not None and Path(run.output) == state.resolve()
    if not (is_of_service or views or has_journal):
        return None
    journal, torn = report_on_journal(journal_path, run, all_segments=True)
    with translate_os_errors("journal", journal_path):
        is_trimmed = has_journal and not journal.damage and oldest_retained_time(journal_path) > 0
    derived, notes = _check_views(views, check_files, _NOT_REBUILT if is_trimmed else _REBUILT)
    required = [journal]
    if is_alone := (state / SERVICE_FILE).exists() and run is None:
        for folder in sorted((state / FLOWS).glob("*/")):
            required += inspect_directories(folder, None)
        notes.append(
            "The registry is in ZooKeeper: the next start checks whether these parts belong "
            "together. `driftline verify NAME` checks the directories of agents"
        )
    damage = [view.damage for view in derived if view.damage]
    refusals, damage = (damage, []) if is_trimmed else ([], damage)
    try:
        check_definition(state)
    except DriftlineError as error:
        refusals.append(str(error))
    if torn:  # a crash may leave a torn end; after an orderly end it is damage
        (damage if _ended_cleanly(run, journal) else notes).append(torn)
    findings = tuple(map(Problem, refusals)), tuple(damage), "\n".join(notes)
    return ServiceContents(
        tuple(required), tuple(derived), RECOVERY_ADVICE, *findings, is_alone=is_alone
    )


def _check_views(
    directories: Sequence[Path], check_files: CheckFiles, effect: str
) -> tuple[list[DirectoryReport], list[str]]:
    """Return reports on views, and notes on unchecked views; `effect`: the effect of damage."""
    reports, notes = list[DirectoryReport](), list[str]()
    for path in directories:
        report = DirectoryReport(f"{VIEW}-{path.name}", str(path))
        try:
            with translate_os_errors("view", path):
                if not (path / CHECKPOINT).exists():
                    raise SnapshotDamaged(f"{path / CHECKPOINT} is missing")
                files = check_files(path, read_parts(path / CHECKPOINT))
            summary = f"a checkpoint and {counted(files, 'segment')}" if files else "a checkpoint"
            reports.append(replace(report, summary=summary))
        except SnapshotDamaged as error:
            reports.append(replace(report, damage=f"{error}; {effect}"))
        except Unavailable as error:
            notes.append(f"not checked: {report}: {error}")
    return reports, notes


def _ended_cleanly(run: ClusterState | None, journal: DirectoryReport) -> bool:
    """Return whether the last session that opened the journal ended normally."""
    if run is None or journal.owner is None:
        return False
    return journal.owner.session <= run.last_session and end_status_of(run) is EndStatus.DRAINED
