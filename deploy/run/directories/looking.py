"""Reads all directories of a run, checks all checksums, and reports on each directory.

A process of its own does the reading, ``python -m driftline.deploy.run.directories.looking STATE
OUTPUT [OFFSET ...]``: LMDB has no checksums over its own pages, so damaged pages may end the
process that reads them. For each directory the process prints a line of JSON before it reads, and
another one with the report. The last line shows which directory has ended the process. A process
that others have ended, such as the kernel for want of memory, has shown nothing: another one reads
everything again.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from driftline.coordinator.registry import FileRegistry
from driftline.deploy.host.children import child
from driftline.deploy.host.children.deaths import MAY_BE_DAMAGE
from driftline.deploy.run.directories.survey import LOG, OUTPUT, STORE, USED, DirectoryReport
from driftline.deploy.run.inputs.used_files import read_used
from driftline.engine.counted import counted
from driftline.engine.durable import reported
from driftline.engine.errors import (
    DriftlineError,
    SnapshotDamaged,
    StateMismatch,
    Unavailable,
)
from driftline.engine.events import about, log
from driftline.engine.lmdbs import DATA
from driftline.engine.sinks import jsonl, lmdb
from driftline.engine.sinks.commit_record import CommitRecord
from driftline.engine.sinks.directory import read_mark
from driftline.engine.snapshots.reading import read_store
from driftline.engine.snapshots.store import check_parts
from driftline.engine.sources.logs.inputlog import check_log
from driftline.engine.wire.marks import Mark

TRIES = 5
"""How many processes read before a start, if others end them."""


def look(
    state: Path | None, output: Path | None, offsets: Sequence[int] | None = None
) -> list[DirectoryReport]:
    """A report on each directory of a run.

    `state`: the state directory, which may be missing; `output`: the output directory; None to
    leave one out. `offsets`: of the newest snapshot in the logs of inputs, None if the registry in
    the state directory has them. Raises Unavailable if the process that reads them fails, or is
    ended by others each time.
    """
    done = _read_by_another(state, output, offsets)
    reports: dict[str, DirectoryReport] = {}
    role = ""
    for line in done.stdout.splitlines():
        fields = json.loads(line)
        role = fields["role"]
        mark = fields.pop("mark")
        reports[role] = DirectoryReport(mark=None if mark is None else Mark(**mark), **fields)
    if role and done.returncode in MAY_BE_DAMAGE:
        damage = f"{reports[role]} is damaged: reading it ends in {_signal(done)}"
        reports[role] = replace(reports[role], damage=damage, deadly=True)
    elif done.returncode:
        last_line = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        why = _ended_by(done) or " ".join(last_line)
        raise Unavailable(f"{state or output} cannot be looked at: {why}")
    return list(reports.values())


def _read_by_another(
    state: Path | None, output: Path | None, offsets: Sequence[int] | None
) -> subprocess.CompletedProcess[bytes]:
    """A process that has read everything, or has failed. Raises Unavailable."""
    given = state or "", output or "", *(offsets or ())
    for number in range(1, TRIES + 1):
        done = subprocess.run(
            child.command("driftline.deploy.run.directories.looking", *given),
            env=child.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode >= 0 or done.returncode in MAY_BE_DAMAGE:
            return done
        if number < TRIES:
            told = about("looking-again", signal=_signal(done), tries=number)
            log.warning("%s is looked at again: %s", state or output, _ended_by(done), extra=told)
    raise Unavailable(
        f"{state or output} cannot be looked at: {_ended_by(done)}, {TRIES} times in a row; is "
        "there too little memory?"
    )


def _ended_by(done: subprocess.CompletedProcess[bytes]) -> str:
    by = _signal(done)
    return by and f"the process that reads it was ended by {by}"


def _signal(done: subprocess.CompletedProcess[bytes]) -> str:
    """The name of the signal that has ended a process; empty if there was none."""
    return signal.Signals(-done.returncode).name if done.returncode < 0 else ""


def _store(report: DirectoryReport) -> DirectoryReport:
    path = Path(report.path)
    try:
        store = read_store(path)
        newest = check_parts(store)
    except SnapshotDamaged as error:
        return replace(report, damage=str(error))
    size = sum(map(len, store.rows.values()))
    holds = f"parts up to {newest}, {counted(size, 'byte')}"
    return replace(report, mark=store.mark, newest=newest, holds=holds)


def _offsets(state: Path | None) -> Sequence[int]:
    """Of the newest snapshot of the registry in a state directory, if there is one."""
    if state is None:
        return ()
    run = None
    with suppress(StateMismatch):  # which is told of the registry itself
        run = FileRegistry(state / "registry").read()
    return run.snapshots[0].offsets if run is not None and run.snapshots else ()


def _log(report: DirectoryReport, offsets: Sequence[int]) -> DirectoryReport:
    path = Path(report.path)
    log = check_log(path, offsets[report.index] if report.index < len(offsets) else 0)
    return replace(
        report,
        mark=log.mark,
        reserved=log.reserved,
        noted=log.noted,
        entries=log.entries,
        trimmed=log.trimmed,
        waiting=log.later,
        holds=counted(log.entries, "record"),
    )


def _used(report: DirectoryReport) -> DirectoryReport:
    found = read_used(Path(report.path))
    if found is None:
        return report
    holds = f"a checksum over the records up to {found.used.last}"
    return replace(report, mark=found.mark, holds=holds)


def _output(report: DirectoryReport) -> DirectoryReport:
    directory = Path(report.path)
    with reported("output", directory):
        mark = read_mark(directory, report.index)
        record = directory / ".driftline" / f"barrier-{report.index}.progress"
        rows = directory / f"barrier-{report.index}"
        progress, damage = CommitRecord(), list[str]()
        if record.exists():
            progress = CommitRecord.decode(record.read_bytes(), str(record))
            damage = jsonl.damage_in(directory, report.index)
        elif (rows / DATA).exists():
            progress, damage = lmdb.committed_in(rows), lmdb.damage_in(rows)
        else:
            damage = jsonl.damage_in(directory, report.index)
    size = sum(length for _, length, _ in progress.files)
    holds = counted(progress.rows[0], "output") if progress.rows[0] else counted(size, "byte")
    if after := jsonl.bytes_after(directory, report.index, progress):
        holds += (
            f", and {counted(after, 'byte')} not yet delivered, which a run that goes on cuts off"
        )
    return replace(
        report,
        mark=mark,
        t_last=progress.last.t_last,
        failures=progress.failures,
        damage=" ".join(damage),
        holds=holds,
    )


Reader = Callable[[DirectoryReport], DirectoryReport]
"""Reads a directory, and completes the report on it. Raises DriftlineError for damage."""


def _everything(
    state: Path | None, output: Path | None, offsets: Sequence[int]
) -> Iterator[tuple[DirectoryReport, Reader]]:
    """An empty report and a reader for each directory of a run."""
    if state is not None:
        for path in _numbered(state, r"node-(\d+)", DATA):
            yield DirectoryReport(path.name, str(path)), _store
        for path in _numbered(state, r"input-(\d+)", DATA):
            yield DirectoryReport(path.name, str(path)), partial(_log, offsets=offsets)
        for path in sorted(state.glob("input-*.used")):
            index = path.stem.removeprefix("input-")
            yield DirectoryReport(f"{USED}-{index}", str(path)), _used
    if output is not None:
        hidden = output / ".driftline"
        numbers = {
            int(match[1])
            for path in (hidden.iterdir() if hidden.is_dir() else ())
            if (match := re.fullmatch(r"barrier-(\d+)\.(progress|mark)", path.name))
        }
        for number in sorted(numbers):
            yield DirectoryReport(f"{OUTPUT}-{number}", str(output)), _output


def _numbered(directory: Path, pattern: str, file: str) -> list[Path]:
    """The folders in a directory whose name matches, and whose `file` is not empty."""
    if not directory.is_dir():
        return []
    paths = (path for path in directory.iterdir() if re.fullmatch(pattern, path.name))
    return sorted(path for path in paths if (path / file).exists() and (path / file).stat().st_size)


def main(state: str, output: str, *given: str) -> None:
    """Read every directory, and print a line of JSON before and after each."""
    where = Path(state) if state else None
    offsets = list(map(int, given)) or _offsets(where)
    for empty, read in _everything(where, Path(output) if output else None, offsets):
        print(json.dumps(asdict(empty)), flush=True)
        try:
            report = read(empty)
        except DriftlineError as error:
            report = replace(empty, damage=str(error))
        print(json.dumps(asdict(report)), flush=True)


assert {STORE, LOG} == {"node", "input"}, "the names of the directories"

if __name__ == "__main__":
    main(*sys.argv[1:])
