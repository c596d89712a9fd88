"""Where the outputs of a run are, if they are not where the user says.

The registry remembers where they were in the newest session. That is a hint only, as directories
may be moved and copied: what counts are the marks that are there.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from driftline.coordinator.registry import ClusterState
from driftline.engine.errors import StateMismatch
from driftline.engine.sinks.directory import read_mark


def lineages_in(output: Path) -> set[str]:
    """The runs whose marks are in an output directory. Raises OSError."""
    found = set()
    for path in (output / ".driftline").glob("barrier-*.mark"):
        with suppress(StateMismatch):  # a damaged mark names no run
            if (mark := read_mark(output, int(path.stem.partition("-")[2]))) is not None:
                found.add(mark.lineage)
    return found


def outputs_elsewhere(run: ClusterState | None, state: Path, output: Path) -> str:
    """A sentence with the right output directory, if `output` is another one; else empty.

    `run`: the contents of the registry in the directory `state`.
    """
    if run is None or not run.output or Path(run.output) == output.resolve():
        return ""
    with suppress(OSError):  # of a directory that cannot be read nothing is known
        if run.lineage in lineages_in(Path(run.output)) and run.lineage not in lineages_in(output):
            return (
                f"{output} has no outputs of the run in state directory {state}: they are in "
                f"{run.output}. Give --output {run.output}; or, to begin another run in {output}, "
                "another --state"
            )
    return ""
