"""The output directory: its identity, and the locks of the processes that write it.

``.driftline/identity`` has three lines: the version of this file, the format of the outputs (or the
address of the sink), and the identity of the run: flow, policy, initial number of nodes, inputs,
and the savepoint from which it began.
``.driftline/barrier-<n>.owner`` names the run and the session that the outputs of barrier n belong
to. A process that writes these outputs holds a lock on ``.driftline/barrier-<n>.lock``. The nodes
of a run share one directory, and may open it at the same moment.

``.driftline/spark.progress`` is the commit record of `driftline spark run`. It shows that the
directory has all outputs before a time T. A run that continues them has to begin from a savepoint
as of T.
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
    """An open output directory. It holds the lock on the outputs of one barrier until `close`."""

    def __init__(
        self,
        path: Path,
        barrier: str,
        format_and_identity: str,
        output_glob: str,
        owner: DirectoryOwner = NO_OWNER,
    ) -> None:
        """Open the directory for a barrier; create it if it is missing.

        `barrier`: the name of the barrier, such as "barrier-0"; `format_and_identity`: the format
        or address, and in a second line the identity of the run; `output_glob`: see
        `why_not_writable`; `owner`: the run and its session.

        Raises StateMismatch if the directory belongs to another run; Unavailable if it cannot be
        written, or if another process writes the outputs of this barrier; MalformedMessage if the
        name of the barrier is invalid.
        """
        self.path = path
        self.number = barrier_number(barrier)
        self.metadata = path / ".driftline"
        self._lock: Lock | None = None
        with translate_os_errors("output", path):
            # Look for foreign files before writing the identity file: if a directory has one,
            # `why_not_writable` accepts all its files. The other nodes of this run also write it
            # before their files, so these are accepted, too.
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
                    "number of nodes, savepoint, format, sink address or version of Driftline "
                    "differs. To continue that run, give all of these as they were; to begin "
                    "another run, give another --output and --state"
                )
        finally:
            lock.release()


def stored_format_or_address(path: Path) -> str:
    """Return the format, or the address of the sink, in the identity of a directory.

    Return "" without an identity. Raises Unavailable.
    """
    file = path / ".driftline" / IDENTITY
    with translate_os_errors("output", path):
        lines = file.read_text().split("\n") if file.exists() else []
    return lines[1] if len(lines) > 1 and lines[0] == _FORMAT else ""


def identity_lines(format_and_identity: str) -> bytes:
    """Return the contents of the identity file."""
    return f"{_FORMAT}\n{format_and_identity}\n".encode()


def why_not_writable(path: Path, output_glob: str, identity: str = "") -> str:
    """Return why a run must not write into a directory; "" if it may.

    `output_glob`: pattern that matches output files. If a directory has such files, it must also
    have an identity file. `identity`: a text that ends with the identity of the run. Raises
    StateMismatch if the commit record of Spark's outputs is damaged, OSError.
    """
    metadata = path / ".driftline"
    if reason := why_spark_cannot_be_continued(path, identity):
        return reason
    ignored = metadata, path / DEAD_LETTERS  # bad records may be written before the identity
    output_files = sorted(
        file
        for file in path.glob(output_glob)
        if file not in ignored and not is_of_spark(file.name)
    )
    if not output_files or (metadata / IDENTITY).exists():
        return ""
    if not any(_BARRIER_FILE.search(file.name) for file in output_files):
        return (
            f"{path} holds {output_files[0].name}, which cannot be verified or resumed: the names "
            "of a run's files end with the number of a node. The file was written by `driftline "
            "run --reference` or by another program. A run needs another --output"
        )
    return (
        f"{path} holds {output_files[0].name}, but {metadata / IDENTITY} is missing. If these are "
        f"outputs of an earlier run, restore {metadata} from a backup: without it no run can "
        "continue them. If not, give another --output"
    )


def why_spark_cannot_be_continued(path: Path, identity: str) -> str:
    """Return why a run cannot continue the outputs of Spark in a directory.

    Return "" if the run can, or if the directory has no outputs of Spark. `identity`: the identity
    of the run. Raises StateMismatch if the commit record of these outputs is damaged, OSError.
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
    """Return a phrase for users: the savepoint from which a run continues Spark's outputs, and the
    option that names it."""
    if spark_record.savepoint:
        return f"their savepoint: --from-savepoint {spark_record.savepoint}"
    return (
        "a savepoint of the same time: write it with `driftline spark run --until "
        f"{spark_record.last.t_last + 1} --save DIR` and another --output, and name it with "
        "--from-savepoint DIR"
    )


def identity_in(directory: Path) -> str:
    """Return the identity of the run whose outputs a directory contains.

    Return "" if the directory has no identity file. Precondition: the identity is a single line.
    Raises OSError.
    """
    file = directory / ".driftline" / IDENTITY
    return file.read_text(encoding="utf-8").splitlines()[-1] if file.exists() else ""


def is_of_spark(name: str) -> bool:
    """Return whether `driftline spark run` wrote the file with this name.

    A run that continues its outputs adds files with other names to the same directory.
    """
    return _SPARK_FILE.search(name) is not None


def owner_file_of(directory: Path, number: int) -> Path:
    """Return the path of the file that names the owner of a barrier's outputs."""
    return directory / ".driftline" / f"barrier-{number}.owner"


def barrier_number(barrier: str) -> int:
    """Return the number in a barrier's name. Raises MalformedMessage for an invalid name.

    The names of the barrier's files contain only this number: the name may come from a network,
    and must not become a path to another directory.
    """
    match = re.fullmatch(r"[a-z]+-([0-9]{1,6})", barrier)
    if match is None:
        raise MalformedMessage(f"{barrier!r} is not the name of a barrier")
    return int(match[1])
