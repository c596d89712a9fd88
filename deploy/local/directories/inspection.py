"""Reads all directories of a run, checks all checksums, and reports on each directory.

If there are LMDB files, a child process reads all directories: ``python -m MODULE STATE OUTPUT``.
LMDB has no checksums of its pages, so a damaged page may crash the process that reads it. For each
directory, the child prints an empty report before it reads the directory, and the full report
afterwards, each as a line of JSON. If it crashes, the last line names the damaged directory.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import to_builtins
from msgspec.structs import replace

from driftline.connectors.logs.inputlog import check_log, is_log
from driftline.connectors.sinks import jsonl, lmdb
from driftline.connectors.sinks.commit_record import CommitRecord
from driftline.connectors.sinks.directory import (
    SPARK_RECORD,
    describe_savepoint,
    owner_file_of,
    read_spark_record,
)
from driftline.deploy.local.directories.survey import (
    HISTORY,
    LOG,
    OUTPUT,
    STORE,
    USED,
    DirectoryReport,
)
from driftline.deploy.local.inputs.used_files import read_used
from driftline.deploy.runtime.supervision import child
from driftline.deploy.runtime.supervision.restarts import MAY_BE_DAMAGE
from driftline.engine.durable import translate_os_errors
from driftline.engine.errors import (
    DriftlineError,
    SnapshotDamaged,
    Unavailable,
)
from driftline.engine.snapshots.store import check_parts, read_store
from driftline.engine.storage.lmdbs import DATA
from driftline.engine.storage.ownership import DirectoryOwner, read_owner
from driftline.engine.texts import counted, format_time


def inspect_directories(state: Path | None, output: Path | None) -> list[DirectoryReport]:
    """Report on each directory of a run.

    `state`: the state directory, which may be missing; `output`: the output directory; None: do not
    read it. If damaged data crash the child process, a report says so (`crashes_reader`). Raises
    Unavailable if the child process fails for another reason.
    """
    if not any(any(each.glob(f"*/{DATA}")) for each in (state, output) if each is not None):
        return [_read(blank_report, reader) for blank_report, reader in _directories(state, output)]
    finished = subprocess.run(
        child.command("driftline.deploy.local.directories.inspection", state or "", output or ""),
        env=child.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    ended_by = signal.Signals(-finished.returncode).name if finished.returncode < 0 else ""
    if ended_by and finished.returncode not in MAY_BE_DAMAGE:
        raise Unavailable(
            f"cannot read {state or output}: {ended_by} ended the process that reads it; is the "
            "machine out of memory?"
        )
    reports: dict[str, DirectoryReport] = {}
    role = ""
    for line in finished.stdout.splitlines():
        fields = json.loads(line)
        role = fields["role"]
        owner = fields.pop("owner")
        reports[role] = DirectoryReport(
            owner=None if owner is None else DirectoryOwner(**owner), **fields
        )
    if role and ended_by:
        damage = f"{reports[role]} is damaged: {ended_by} ended the process that read it"
        reports[role] = replace(reports[role], damage=damage, crashes_reader=True)
    elif finished.returncode:
        last_line = finished.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise Unavailable(f"cannot read {state or output}: {ended_by or ' '.join(last_line)}")
    return list(reports.values())


def _read_store_report(report: DirectoryReport) -> DirectoryReport:
    try:
        store = read_store(Path(report.path))
    except SnapshotDamaged as error:
        return replace(report, damage=str(error), unopenable=True)
    try:
        newest = check_parts(store)
    except SnapshotDamaged as error:
        return replace(report, damage=str(error))
    size = sum(map(len, store.rows.values()))
    summary = f"last snapshot {newest} ({counted(size, 'byte')})"
    return replace(report, owner=store.owner, summary=summary)


def _read_log(report: DirectoryReport) -> DirectoryReport:
    log = check_log(Path(report.path))
    summary = counted(log.entries, "record")
    if log.torn:
        summary += (
            f", and {counted(log.torn, 'byte')} of an incomplete write, which a run truncates"
        )
    return replace(
        report,
        owner=log.owner,
        reserved=log.reserved,
        trimmed=log.trimmed,
        summary=summary,
    )


def _read_used_file(report: DirectoryReport) -> DirectoryReport:
    used = read_used(Path(report.path))
    if used is None:
        return report
    summary = f"checksum of the records 1 to {used.fingerprint.last}"
    return replace(report, owner=used.owner, summary=summary)


def _read_output(report: DirectoryReport) -> DirectoryReport:
    directory = Path(report.path)
    with translate_os_errors("output", directory):
        file = owner_file_of(directory, report.index)
        owner = read_owner(file, f"output {file}")
        record_path = directory / ".driftline" / f"barrier-{report.index}.progress"
        lmdb_folder = directory / f"barrier-{report.index}"
        record, damage = CommitRecord(), list[str]()
        if record_path.exists():
            record = CommitRecord.decode(record_path.read_bytes(), str(record_path))
            damage = jsonl.describe_damage(directory, report.index)
        elif (lmdb_folder / DATA).exists():
            record = lmdb.read_commit_record(lmdb_folder)
            damage = lmdb.describe_damage(lmdb_folder)
        else:
            damage = jsonl.describe_damage(directory, report.index)
    size = sum(length for _, length, _ in record.files)
    summary = counted(record.outputs, "output") if record.outputs else counted(size, "byte")
    if uncommitted_bytes := jsonl.uncommitted_bytes(directory, report.index, record):
        size_text = counted(uncommitted_bytes, "byte")
        summary += f", and {size_text} not committed, which the next output overwrites"
    return replace(
        report,
        owner=owner,
        t_last=record.last.t_last,
        failures=record.failures,
        damage=" ".join(damage),
        summary=summary,
    )


def _read_history(report: DirectoryReport) -> DirectoryReport:
    directory = Path(report.path)
    with translate_os_errors("output", directory):
        spark_record = read_spark_record(directory)
        if spark_record is None:
            return report
        damage = jsonl.damaged_files(directory, spark_record)
    end = format_time(spark_record.last.t_last + 1)
    return replace(
        report,
        t_last=spark_record.last.t_last,
        damage=" ".join(damage),
        summary=f"{counted(spark_record.outputs, 'output')} before {end}; a run continues "
        f"them from {describe_savepoint(spark_record)}",
    )


Reader = Callable[[DirectoryReport], DirectoryReport]
"""Function that reads a directory and completes its report. Raises DriftlineError for damage."""


def _directories(
    state: Path | None, output: Path | None
) -> Iterator[tuple[DirectoryReport, Reader]]:
    """Yield an empty report and a reader for each existing directory of a run."""
    if state is not None:
        for path in _matching_entries(state, r"node-(\d+)"):
            if (path / DATA).exists() and (path / DATA).stat().st_size:
                yield DirectoryReport(path.name, str(path)), _read_store_report
        for path in _matching_entries(state, r"input-(\d+)"):
            if is_log(path):
                yield DirectoryReport(path.name, str(path)), _read_log
        for path in sorted(state.glob("input-*.used")):
            index = path.stem.removeprefix("input-")
            yield DirectoryReport(f"{USED}-{index}", str(path)), _read_used_file
    if output is not None:
        hidden = output / ".driftline"
        numbers = {
            int(match[1])
            for path in (hidden.iterdir() if hidden.is_dir() else ())
            if (match := re.fullmatch(r"barrier-(\d+)\.(progress|owner)", path.name))
        }
        for number in sorted(numbers):
            yield DirectoryReport(f"{OUTPUT}-{number}", str(output)), _read_output
        if (hidden / SPARK_RECORD).exists():
            yield DirectoryReport(HISTORY, str(output)), _read_history


def _matching_entries(directory: Path, pattern: str) -> list[Path]:
    """Return the entries of a directory whose whole names match a pattern, sorted by name."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if re.fullmatch(pattern, path.name))


def main(state: str, output: str) -> None:
    """Read every directory, and print a line of JSON before and after each."""
    for blank_report, reader in _directories(
        Path(state) if state else None, Path(output) if output else None
    ):
        print(json.dumps(to_builtins(blank_report)), flush=True)
        print(json.dumps(to_builtins(_read(blank_report, reader))), flush=True)


def _read(blank_report: DirectoryReport, reader: Reader) -> DirectoryReport:
    """Return the report on a directory, even if it is damaged."""
    try:
        return reader(blank_report)
    except DriftlineError as error:
        return replace(blank_report, damage=str(error))


assert {STORE, LOG} == {"node", "input"}, "the names of the directories"

if __name__ == "__main__":
    main(*sys.argv[1:])
