"""Implements `--fresh`: removes the state and the outputs of the earlier run, and nothing else.

Before the first removal, it checks that no process of the earlier run is active, that each file
belongs to the run, and that received records can be sent again. It removes the owner files of the
outputs first, and the registry and the identity of the outputs last. If it crashes in between, the
same command finishes the removal. A command without `--fresh` then either fails because outputs are
missing, or finds empty directories.

Lock files stay: they are empty, and another process may be waiting for one of them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from driftline.connectors.logs.inputlog import check_log, is_log
from driftline.connectors.outputs import COMMIT_RECORDS
from driftline.connectors.sinks.commit_record import CommitRecord
from driftline.connectors.sinks.directory import (
    IDENTITY,
    SPARK_RECORD,
    is_of_spark,
    why_spark_cannot_be_continued,
)
from driftline.connectors.sinks.jsonl import FORMAT_NAME
from driftline.connectors.sinks.lines import DEAD_LETTERS
from driftline.coordinator.registry import ClusterState, FileRegistry
from driftline.deploy.local.directories.survey import LOG
from driftline.deploy.local.inputs.fronts import PIPED
from driftline.deploy.runtime import claims
from driftline.deploy.runtime.claims import wait_for_others
from driftline.engine.durable import Lock, sync_directory
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.outline import make_outline
from driftline.engine.storage.ownership import read_owner
from driftline.engine.texts import escape_file_name

_NOT_REMOVED = (
    rf".+\.lock|sockets|\..+\.[0-9]+|{COMMIT_RECORDS}|{SPARK_RECORD}"
    r"|(input-[0-9]+-)?spark-.+\.jsonl"
)
"""Names of files and folders that are not removed.

These are locks, the file with the path of the socket folder, drafts (see `leftovers`), the outputs
of Spark before the run, and the folder `COMMIT_RECORDS`: its contents are removed, but not the
folder.
"""
_STATE_FILES = r"registry|at-node-[0-9]+|input-[0-9]+\.used"
"""Names of files in a state directory."""
_STATE_FOLDERS = r"(node|input)-[0-9]+"
"""Names of folders in a state directory."""
_STATE_FOLDER_FILES = r"data\.mdb|lock\.mdb|claim|owner|segment-[0-9]{8}"
"""Names of files in the folders of a state directory."""
_METADATA_FILES = r"identity|barrier-[0-9]+\.(owner|next|progress)"
"""Names of files in the folder `.driftline` of outputs."""
_DEAD_LETTERS = r"(input-)?[0-9]+\.jsonl"
"""Names of files with dead letters or bad records."""


def remove_run(flow: Flow, state: Path, output: Path, identity: str = "") -> None:
    """Remove the contents of a state directory and the outputs of its run.

    `flow`, `identity`: the flow and the identity of the next run. Precondition: the caller has
    locked the state directory. Raises StateMismatch for a file that does not belong to a run, for
    outputs of another run, for outputs of Spark that the next run does not continue, and for
    records that cannot be sent again; Unavailable if a process is active or a file cannot be
    removed.
    """
    if state.is_dir():
        wait_for_others(state)
    metadata = output / ".driftline"
    try:
        with ExitStack() as locks:
            for path in sorted(metadata.glob("barrier-*.lock")):
                in_use_error = f"another process is writing to {output}: stop it first"
                locks.callback(Lock(path, in_use_error, wait_s=claims.CLAIM_S).release)
            if reason := why_spark_cannot_be_continued(output, identity):
                raise StateMismatch(reason)
            _check_and_remove(flow, state, output)
    except OSError as error:
        raise Unavailable(f"{error.filename or output}: {error.strerror}") from None


def _check_and_remove(flow: Flow, state: Path, output: Path) -> None:
    metadata = output / ".driftline"
    run = _read_registry(state)
    state_paths = _contents(state, _STATE_FILES, _STATE_FOLDERS)
    for folder in filter(Path.is_dir, state_paths):
        _contents(folder, _STATE_FOLDER_FILES)
    if metadata.is_dir() and output != state / COMMIT_RECORDS:
        _check_format(output)
    output_paths = _outputs(flow, run, output) if metadata.is_dir() else []
    _check_same_run(run, state, output, is_state_empty=not state_paths)
    _check_logs(run, state)
    registry = state / "registry"
    # The registry and the identity name the files of the run, so they are removed last.
    for kind in (".owner", ".jsonl", ".next", ".progress"):
        _remove([path for path in output_paths if path.suffix == kind])
    _remove([path for path in state_paths if path != registry])
    _remove([registry, metadata / IDENTITY])


def _read_registry(state: Path) -> ClusterState | None:
    """Return the contents of the registry, or None if none can be read."""
    with suppress(StateMismatch):
        return FileRegistry(state / "registry").read()
    return None


# Finding the files of the run.


def _contents(folder: Path, files: str, folders: str = "") -> list[Path]:
    """Return the files and folders of a run in a folder, except `_NOT_REMOVED`.

    `files`, `folders`: patterns of their names. Raises StateMismatch for any other name.
    """
    paths = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if re.fullmatch(_NOT_REMOVED, path.name):
            continue
        pattern = folders if path.is_dir() and not path.is_symlink() else files
        if not re.fullmatch(pattern, path.name):
            raise _foreign(path)
        paths.append(path)
    return paths


def _foreign(path: Path) -> StateMismatch:
    return StateMismatch(
        f"{path} was not written by the earlier run, so --fresh removes nothing. Move it to "
        "another place, or give another --output or --state"
    )


def _check_format(output: Path) -> None:
    """Raise StateMismatch if the outputs have another format than JSON lines, such as LMDB."""
    identity = output / ".driftline" / IDENTITY
    if identity.exists() and FORMAT_NAME not in identity.read_text().split("\n"):
        raise StateMismatch(f"{output} holds outputs that are not JSON lines: remove it by hand")


def _outputs(flow: Flow, run: ClusterState | None, output: Path) -> list[Path]:
    """Return the files with outputs, dead letters and metadata.

    Raises StateMismatch for other JSON lines in `output`, and for any other file in its folders of
    metadata and dead letters.
    """
    metadata = output / ".driftline"
    metadata_paths = _contents(metadata, _METADATA_FILES, "state")
    names = (
        set(_output_names(flow, run, metadata_paths)) if (metadata / IDENTITY).exists() else set()
    )
    files = []
    for path in sorted(output.glob("*.jsonl")):
        if path.name in names:
            files.append(path)
        elif not is_of_spark(path.name):
            raise _foreign(path)
    return [
        *(path for path in metadata_paths if path.is_file()),
        *files,
        *_contents(output / DEAD_LETTERS, _DEAD_LETTERS),
    ]


def _output_names(
    flow: Flow, run: ClusterState | None, metadata_paths: Sequence[Path]
) -> Iterator[str]:
    """Yield the names that output files of the run may have.

    They follow from the flow that ran, the flow that runs next, and the commit records.
    """
    outlines = [make_outline(flow)]
    if run is not None and run.identity_details is not None:
        outlines.append(run.identity_details.flow)
    sinks = {each.name for one in outlines for each in one.operators if each.kind == "sink"}
    for path in metadata_paths:
        match = re.fullmatch(r"barrier-([0-9]+)\..+", path.name)
        if match is not None:
            yield from (f"{escape_file_name(sink)}-{match[1]}.jsonl" for sink in sinks)
        if path.suffix == ".progress":
            with suppress(StateMismatch):
                record = CommitRecord.decode(path.read_bytes(), str(path))
                yield from (name for name, _, _ in record.files)


# Checks before the removal.


def _check_same_run(
    run: ClusterState | None, state: Path, output: Path, *, is_state_empty: bool
) -> None:
    """Check that the state and the outputs belong to one run.

    Raises StateMismatch for outputs of another run, and if the outputs of this state are in another
    directory, which --fresh would not clear. Directories may have been moved, so only their owners
    show which one has the outputs of the run.
    """
    lineages = _lineages_in(output)
    if run is not None and run.lineage not in lineages:
        # The identity is removed last: without it, `output` has no outputs, or only leftovers.
        has_outputs = (output / ".driftline" / IDENTITY).exists()
        if not has_outputs and run.output and run.lineage in _lineages_in(Path(run.output)):
            raise StateMismatch(
                f"the outputs of the run in state directory {state} are not in {output}, but in "
                f"{run.output}. Give --output {run.output}; or, to begin another run in {output}, "
                "give another --state"
            )
    if run is not None:
        lineages.discard(run.lineage)
    elif state.parent == output / ".driftline" and not is_state_empty:
        lineages.clear()  # the registry of these outputs is lost
    if lineages - {""}:
        raise StateMismatch(
            f"{output} holds outputs of another run than that of state directory {state}: give the "
            "--state of these outputs, or another --output; if that state is lost, remove the "
            "outputs by hand"
        )


def _lineages_in(output: Path) -> set[str]:
    """Return the lineages of the owners in an output directory. Raises OSError."""
    lineages = set()
    for path in (output / ".driftline").glob("barrier-*.owner"):
        with suppress(StateMismatch):  # skip damaged owners
            if (owner := read_owner(path, f"output {path}")) is not None:
                lineages.add(owner.lineage)
    return lineages


def _check_logs(run: ClusterState | None, state: Path) -> None:
    """Raise StateMismatch if a log holds records that cannot be sent again, or is damaged.

    The user can pipe standard input again; producers forget acknowledged records.
    """
    for path in _logs_of_producers(run, state):
        contents = ""
        try:
            log_contents = check_log(path)
            if log_contents.entries or log_contents.trimmed:
                contents = "acknowledged records, which their producers cannot resend"
        except StateMismatch:
            contents = "a log of received records that cannot be read"
        if contents:
            raise StateMismatch(
                f"{path} holds {contents}, so --fresh removes nothing. Remove {path} by hand if "
                "you do not need the records"
            )


def _logs_of_producers(run: ClusterState | None, state: Path) -> list[Path]:
    """Return all input logs except those of piped standard input."""
    input_identities = (
        run.identity_details.inputs if run is not None and run.identity_details is not None else ()
    )
    return [
        path
        for path in sorted(state.glob(f"{LOG}-*"))
        if is_log(path)
        and input_identities[int(path.name.removeprefix(f"{LOG}-")) :][:1] != (PIPED,)
    ]


# Removal.


def _remove(paths: Sequence[Path]) -> None:
    """Remove files and folders, and make their removal durable."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for folder in sorted({path.parent for path in paths}):
        if folder.is_dir():
            sync_directory(folder)
