"""What `driftline verify` checks in the state directory of a service, beside what a run has there:
the journal, all of it, and the checkpoints of views. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster.tree.tree import FLOWS
from driftline.deploy.run.ending import How, how_ended
from driftline.deploy.run.looking import look
from driftline.deploy.run.survey import VIEW, DirectoryReport
from driftline.deploy.run.verify import Beside
from driftline.engine.counted import counted
from driftline.engine.durable import reported
from driftline.engine.errors import SnapshotDamaged, Unavailable
from driftline.serve.hosting.config import JOURNAL as FOLDER
from driftline.serve.hosting.view_process import CHECKPOINT
from driftline.serve.running.deployment import NOTE
from driftline.serve.running.directories import report_on_journal
from driftline.serve.running.opening import WHOLE
from driftline.serve.views.checkpoint import parts_of

CheckFiles = Callable[[Path, Iterable[bytes]], int]
"""Checks the files beside a checkpoint with these parts, in the directory of a view. Returns how
many there are. Raises SnapshotDamaged, which says what becomes of the view, OSError; Unavailable
if they cannot be checked here."""


def look_beside(state: Path, run: ClusterState | None, *, check_files: CheckFiles) -> Beside | None:
    """What a service has in a state directory; None: it is none of a service.

    `run`: the contents of its registry. Raises Unavailable.
    """
    with reported("state directory", state):
        checkpoints = sorted(state.glob(f"*/{CHECKPOINT}"))
    is_begun = run is not None and Path(run.output) == state.resolve()
    if not (is_begun or checkpoints or (state / FOLDER).is_dir()):
        return None
    journal, torn = report_on_journal(state / FOLDER, run, whole=True)
    views, notes = list[DirectoryReport](), list[str]()
    for path in checkpoints:
        report = DirectoryReport(f"{VIEW}-{path.parent.name}", str(path.parent))
        try:
            with reported("view", path.parent):
                files = check_files(path.parent, _parts(path))
            holds = f"a checkpoint and {counted(files, 'segment')}" if files else "a checkpoint"
            views.append(replace(report, holds=holds))
        except SnapshotDamaged as error:
            views.append(replace(report, damage=str(error)))
        except Unavailable as error:
            notes.append(f"not checked: {report}: {error}")
    kept = [journal]
    if is_alone := (state / NOTE).exists() and run is None:
        for folder in sorted((state / FLOWS).glob("*/")):
            kept += look(folder, None, ())
        notes.append(
            "The registry is with the cluster: whether these parts belong together is checked at "
            "the next start. `driftline verify NAME` checks what agents have"
        )
    damage = [view.damage for view in views if view.damage]
    if torn:  # a crash may leave that
        (damage if _ended_in_good_order(run, journal) else notes).append(torn)
    told = tuple(damage), "\n".join(notes)
    return Beside(tuple(kept), tuple(views), WHOLE, *told, is_alone=is_alone)


def _ended_in_good_order(run: ClusterState | None, journal: DirectoryReport) -> bool:
    """Whether so has ended the last session that has had the journal open."""
    if run is None or journal.mark is None:
        return False
    return journal.mark.session <= run.opened and how_ended(run) is How.ASKED


def _parts(path: Path) -> Iterator[bytes]:
    """The parts of a checkpoint. Raises SnapshotDamaged, Unavailable."""
    try:
        yield from parts_of(path)
    except SnapshotDamaged as error:
        anew = "the view is made anew from the journal at the next start"
        raise SnapshotDamaged(f"{error}; {anew}") from None
