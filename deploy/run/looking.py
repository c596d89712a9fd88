"""Reads every directory of a run, checks all checksums, and tells what each says of itself.

It is done in a process of its own, ``python -m deploy.run.looking STATE OUTPUT``: LMDB has no
checksums over its own pages, so what is damaged there may end the process that reads it. It says
what it is about to read, one JSON line each, and then what it has found; so it is known what ended
it.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from driftline.deploy.host import child
from driftline.deploy.run.survey import LOG, OUTPUT, STORE, Found
from driftline.engine.errors import DriftlineError, SnapshotDamaged, Unavailable
from driftline.engine.lmdbs import DATA, every_row, reported
from driftline.engine.sinks import jsonl, lmdb
from driftline.engine.sinks.commit_record import CommitRecord
from driftline.engine.sinks.directory import read_mark
from driftline.engine.sinks.directory import reported as output_reported
from driftline.engine.snapshots.store import check_parts
from driftline.engine.sources.logs.inputlog import check_log
from driftline.engine.wire.marks import MARK, Mark


def look(state: Path, output: Path | None) -> list[Found]:
    """What is found in a state directory and an output directory, each if there is one."""
    done = subprocess.run(
        child.command("driftline.deploy.run.looking", state, "" if output is None else output),
        env=child.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    found: dict[str, Found] = {}
    here = ""
    for line in done.stdout.splitlines():
        said = json.loads(line)
        here = said["part"]
        mark = said.pop("mark")
        found[here] = Found(mark=None if mark is None else Mark(**mark), **said)
    by = signal.Signals(-done.returncode).name if done.returncode < 0 else ""
    if by and here:
        damage = f"{found[here]} is damaged: reading it ends in {by}"
        found[here] = replace(found[here], damage=damage, deadly=True)
    elif done.returncode:
        said_last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        why = f"the process for it was ended by {by}" if by else " ".join(said_last)
        raise Unavailable(f"{state} cannot be looked at: {why}")
    return list(found.values())


@dataclass(slots=True)
class _Reader:
    """The key-value store of parts, as it is."""

    name: str
    rows: dict[bytes, bytes]

    def read(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def all_keys(self) -> list[bytes]:
        return sorted(self.rows)

    def write(self, puts: object, deletes: object) -> None:
        raise AssertionError("nothing is changed")


def _store(here: Found) -> Found:
    path = Path(here.path)
    name = f"state directory {path}"
    reader = _Reader(name, {})
    mark = None
    with reported(name, SnapshotDamaged):
        for db, key, value in every_row(path, b"about", b"parts"):
            if db == b"parts":
                reader.rows[key] = value
            elif key == MARK:
                mark = Mark.decode(value, name)
    newest = check_parts(reader)
    size = sum(map(len, reader.rows.values()))
    return replace(here, mark=mark, newest=newest, holds=f"parts up to {newest}, {size} bytes")


def _log(here: Found) -> Found:
    held = check_log(Path(here.path))
    holds = f"{held.entries} records"
    return replace(here, mark=held.mark, reserved=held.reserved, trimmed=held.trimmed, holds=holds)


def _output(here: Found) -> Found:
    directory = Path(here.path)
    with output_reported(directory):
        mark = read_mark(directory, here.index)
        record = directory / ".driftline" / f"barrier-{here.index}.progress"
        rows = directory / f"barrier-{here.index}"
        progress, damage = CommitRecord(), list[str]()
        if record.exists():
            progress = CommitRecord.decode(record.read_bytes(), str(record))
            damage = jsonl.damage_in(directory, here.index)
        elif (rows / DATA).exists():
            progress, damage = lmdb.committed_in(rows), lmdb.damage_in(rows)
        else:
            damage = jsonl.damage_in(directory, here.index)
    size = sum(length for _, length, _ in progress.files)
    holds = f"{progress.rows[0]} outputs" if progress.rows[0] else f"{size} bytes"
    if after := jsonl.bytes_after(directory, progress):
        holds += f", and {after} that are not delivered, which a run that goes on cuts off"
    t_last = progress.last.t_last
    return replace(here, mark=mark, t_last=t_last, damage=" ".join(damage), holds=holds)


def _everything(
    state: Path, output: Path | None
) -> Iterator[tuple[Found, Callable[[Found], Found]]]:
    for path in _numbered(state, r"node-(\d+)", DATA):
        yield Found(path.name, str(path)), _store
    for path in _numbered(state, r"input-(\d+)", DATA):
        yield Found(path.name, str(path)), _log
    if output is not None:
        hidden = output / ".driftline"
        numbers = {
            int(found[1])
            for path in (hidden.iterdir() if hidden.is_dir() else ())
            if (found := re.fullmatch(r"barrier-(\d+)\.(progress|mark)", path.name))
        }
        for number in sorted(numbers):
            yield Found(f"{OUTPUT}-{number}", str(output)), _output


def _numbered(directory: Path, pattern: str, file: str) -> list[Path]:
    if not directory.is_dir():
        return []
    found = (path for path in directory.iterdir() if re.fullmatch(pattern, path.name))
    return sorted(path for path in found if (path / file).exists() and (path / file).stat().st_size)


def main(state: str, output: str) -> None:
    """Read everything, and say so."""
    for here, read in _everything(Path(state), Path(output) if output else None):
        print(json.dumps(asdict(here)), flush=True)
        try:
            found = read(here)
        except DriftlineError as error:
            found = replace(here, damage=str(error))
        print(json.dumps(asdict(found)), flush=True)


assert {STORE, LOG} == {"node", "input"}, "as the directories are called"

if __name__ == "__main__":
    main(*sys.argv[1:])
