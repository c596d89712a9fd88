"""The output directory: its identity, and the locks of the processes that write it.

``.driftline/identity`` holds the format version, the format (or address of the sink), and the run's
identity: flow, policy, initial number of nodes, inputs, and the savepoint from which it began.
``.driftline/<barrier>.owner`` names the run and the session that the barrier's outputs belong to. A
process holds a lock on ``.driftline/<barrier>.lock`` while it writes these outputs. The nodes of a
run share one directory, and may open it at the same moment.

``.driftline/spark.progress`` is the commit record of `driftline spark run`: all outputs before a
time T are in the directory, so a run that continues them begins from a savepoint of time T.
"""

from __future__ import annotations

import re
from pathlib import Path

from driftline.connectors.sinks.commit_record import CommitRecord
from driftline.connectors.sinks.lines import DEAD_LETTERS
from driftline.engine.durable import Lock, make_directory, replace_file, translate_os_errors
from driftline.engine.errors import MalformedMessage, StateMismatch
from driftline.engine.snapshots.savepoint import starts_from_savepoint
from driftline.engine.storage.ownership import NO_OWNER, DirectoryOwner, renew_owner
from driftline.engine.texts import format_time

_FORMAT = "driftline outputs 1"

IDENTITY = "identity"
"""The file in `.driftline` with the identity of the run (see above)."""

SPARK_RECORD = "spark.progress"
"""The file in `.driftline` with the commit record of `driftline spark run`."""

IDENTITY_LOCK_TIMEOUT_S = 60.0
"""Timeout in seconds for the lock of the identity, which a node holds only for milliseconds."""

_SPARK_FILE = re.compile(r"-spark-[0-9]{5}\.")
"""Matches names of files that `driftline spark run` has written."""

_BARRIER_FILE = re.compile(r"-[0-9]+(\.jsonl)?$")
"""Matches file names of a run, which end with the number of the node's barrier."""


class OutputDirectory:
    """An output directory, with a lock on the outputs of one barrier until it is closed."""

    def __init__(
        self,
        path: Path,
        barrier: str,
        format_and_identity: str,
        output_glob: str,
        owner: DirectoryOwner = NO_OWNER,
    ) -> None:
        """Open the directory for a barrier.

        `format_and_identity`: format or address, and in a second line the identity of the run;
        `output_glob`: see `why_not_writable`. Raises StateMismatch, Unavailable, MalformedMessage.
        """
        self.path = path
        self.number = barrier_number(barrier)
        self.metadata = path / ".driftline"
        self._lock: Lock | None = None
        with translate_os_errors("output", path):
            # Look for foreign files before writing the identity: with an identity, all files are
            # accepted. Another node of this run writes the identity before its own files, so its
            # files are accepted, too.
            if reason := why_not_writable(path, output_glob, format_and_identity):
                raise StateMismatch(reason)
            make_directory(self.metadata)
            self._check_identity(identity_lines(format_and_identity))
            self._lock = Lock(
                self.metadata / f"barrier-{self.number}.lock",
                f"another process is writing the outputs of barrier-{self.number} to {path}: stop "
                "it, or give another --output",
            )
            try:
                renew_owner(owner_file_of(path, self.number), owner, f"output {path}, {barrier},")
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _check_identity(self, contents: bytes) -> None:
        file, lock_file = self.metadata / IDENTITY, self.metadata / f"{IDENTITY}.lock"
        in_use_text = (
            f"another process has held {lock_file} for {IDENTITY_LOCK_TIMEOUT_S:.0f} s: stop it, "
            "or give another --output"
        )
        lock = Lock(lock_file, in_use_text, wait_s=IDENTITY_LOCK_TIMEOUT_S)
        try:
            if not file.exists():
                replace_file(file, contents)
            elif file.read_bytes() != contents:
                raise StateMismatch(
                    f"{self.path} holds the outputs of another run: its flow, inputs, policy, "
                    "savepoint, format or version of Driftline differs: give another --output"
                )
        finally:
            lock.release()


def identity_lines(format_and_identity: str) -> bytes:
    """Return the contents of the file IDENTITY."""
    return f"{_FORMAT}\n{format_and_identity}\n".encode()


def why_not_writable(path: Path, output_glob: str, identity: str = "") -> str:
    """Return why a run must not write into a directory; "" if it may.

    `output_glob`: glob pattern of output files: a directory that has such files needs an identity;
    `identity`: the identity of the run. Raises StateMismatch if the commit record of Spark's
    outputs is damaged, OSError.
    """
    metadata = path / ".driftline"
    if reason := why_spark_cannot_be_continued(path, identity):
        return reason
    ignored = metadata, path / DEAD_LETTERS  # bad records may be written before the identity
    foreign_files = sorted(
        file
        for file in path.glob(output_glob)
        if file not in ignored and not is_of_spark(file.name)
    )
    if not foreign_files or (metadata / IDENTITY).exists():
        return ""
    if not any(_BARRIER_FILE.search(file.name) for file in foreign_files):
        return (
            f"{path} holds {foreign_files[0].name}, which cannot be verified or resumed: the names "
            "of a run's files end with the number of a node. The file was written by `driftline "
            "run --reference` or by another program. A run needs another --output"
        )
    return (
        f"{path} holds {foreign_files[0].name}, but {metadata / IDENTITY} is missing. If these are "
        f"outputs of an earlier run, restore {metadata} from a backup: without it no run can "
        "continue them. If not, give another --output"
    )


def why_spark_cannot_be_continued(path: Path, identity: str) -> str:
    """Return why a run cannot continue the outputs of Spark in a directory.

    Return "" if it can, or if there are none. `identity`: the identity of the run. Raises
    StateMismatch if the commit record of Spark's outputs is damaged, OSError.
    """
    spark_record = read_spark_record(path)
    if spark_record is None:
        spark_files = sorted(file.name for file in path.glob("*.jsonl") if is_of_spark(file.name))
        if not spark_files:
            return ""
        return (
            f"{path} holds {spark_files[0]}, but {path / '.driftline' / SPARK_RECORD} is missing: "
            "`driftline spark run` was interrupted. Remove its outputs, or give another --output"
        )
    start = spark_record.last.t_last + 1
    if start <= 1 or starts_from_savepoint(identity, start):
        return ""
    return (
        f"{path} holds the outputs of `driftline spark run` before {format_time(start)}, so a run "
        f"with this --output has to begin from {describe_savepoint(spark_record)}. For another run "
        "give another --output"
    )


def read_spark_record(directory: Path) -> CommitRecord | None:
    """Return the commit record of `driftline spark run`; None if the directory has none.

    Raises StateMismatch if it is damaged, OSError.
    """
    file = directory / ".driftline" / SPARK_RECORD
    return CommitRecord.decode(file.read_bytes(), str(file)) if file.exists() else None


def describe_savepoint(spark_record: CommitRecord) -> str:
    """Return a phrase for errors: the savepoint and the option to continue Spark's outputs."""
    if spark_record.savepoint:
        return f"their savepoint: --from-snapshot {spark_record.savepoint}"
    return (
        "a savepoint of the same time, which `driftline spark run --until "
        f"{spark_record.last.t_last + 1} --save DIR` writes into another --output: "
        "--from-snapshot DIR"
    )


def identity_in(directory: Path) -> str:
    """Return the identity of the run whose outputs a directory contains; "" if there is none.

    Raises OSError. Precondition: the identity is a single line.
    """
    file = directory / ".driftline" / IDENTITY
    return file.read_text(encoding="utf-8").splitlines()[-1] if file.exists() else ""


def is_of_spark(name: str) -> bool:
    """Return whether `driftline spark run` wrote the file with this name.

    A run that continues its outputs adds files with other names to the same directory.
    """
    return _SPARK_FILE.search(name) is not None


def owner_file_of(directory: Path, number: int) -> Path:
    """Return the file with the owner of a barrier's outputs."""
    return directory / ".driftline" / f"barrier-{number}.owner"


def barrier_number(barrier: str) -> int:
    """Return the number of a barrier, for the names of its files. Raise MalformedMessage.

    The name may come from a network, so it must not become a path to another directory.
    """
    match = re.fullmatch(r"[a-z]+-([0-9]{1,6})", barrier)
    if match is None:
        raise MalformedMessage(f"{barrier!r} is not the name of a barrier")
    return int(match[1])
