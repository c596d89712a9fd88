"""The consumer that writes JSON lines to plain files, with exactly-once delivery.

Each barrier has its own files, so nodes share only the directory: ``<sink>-<barrier>.jsonl`` for
each sink, and ``dead-letters/<barrier>.jsonl`` once there is a dead letter. All ``*.jsonl`` of the
directory, merged by ``t``, are the complete output. For the form of a line see
`connectors.sinks.lines`.

Delivery: append the lines, make them durable, then replace ``.driftline/barrier-<n>.progress``, the
commit record, which contains the lengths of the files, checksums over them, and the bundle.
Replacing it is the commit. After a restart or a failed delivery, the consumer truncates the files
to the lengths in the record before it writes again. This removes an uncommitted bundle. A file
shorter than its committed length is an error. A commit record that is damaged, or missing although
there are outputs, is an error, too. The start of a run and `driftline verify` compare the checksums
(`describe_damage`). A node that restarts after a crash does not: reading all outputs would take too
long.

Readers may see lines of a bundle shortly before the commit.

Cost of a bundle: one write and one fdatasync for each file that the bundle touches. The commit
writes a file as large as the bundle, with one fdatasync, and one fsync of its directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

from driftline.connectors.sinks.commit_record import CommitRecord
from driftline.connectors.sinks.consumer import LastStored, SinkContext, items_of
from driftline.connectors.sinks.directory import OutputDirectory
from driftline.connectors.sinks.lines import DEAD_LETTERS, JsonLines
from driftline.engine.durable import (
    make_directory,
    replace_file,
    sync_directory,
    translate_os_errors,
    write_at,
)
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.steps import FAILURES
from driftline.engine.storage.ownership import NO_OWNER, DirectoryOwner
from driftline.engine.texts import escape_file_name
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.messages import Bundle

FOREIGN = "*.jsonl"
"""Glob pattern of output files. A directory with such files and without an identity belongs to
others, and is refused."""

FORMAT_NAME = "JSON lines"
"""The format of the outputs, as their identity names it."""


class JsonLinesConsumer:
    """The files of one barrier in a directory that all barriers share.

    Args:
        directory: The directory; created if missing.
        barrier: The name of the barrier. File names end with its number.
        flow: The flow. File names begin with the names of its sinks.
        identity: The identity of the outputs: flow, inputs and policy.
        owner: The run and its session.
        on_failures: Called after each stored bundle with its dead letters, often an empty list.
        dead_letters: Whether outputs that JSON cannot represent become dead letters, not errors.

    Raises:
        StateMismatch: If the directory holds outputs of another identity or less than was
            committed, or if the commit record is damaged.
        Unavailable: If the directory cannot be written, or if another process writes the outputs
            of this barrier.
    """

    def __init__(
        self,
        directory: Path,
        barrier: str,
        flow: Flow,
        identity: str,
        owner: DirectoryOwner = NO_OWNER,
        on_failures: Callable[[Sequence[Item]], None] | None = None,
        dead_letters: bool = False,
    ) -> None:
        self.directory = directory
        format_and_identity = f"{FORMAT_NAME}\n{identity}"
        self._claim = OutputDirectory(directory, barrier, format_and_identity, FOREIGN, owner)
        number = self._claim.number
        self._record_path = self._claim.metadata / f"barrier-{number}.progress"
        self._on_failures = on_failures
        self._lines = JsonLines(flow, dead_letters)
        self._sink_count = len(flow.sinks)
        self.paths: dict[int, Path] = {FAILURES: directory / DEAD_LETTERS / f"{number}.jsonl"}
        """Number of a sink -> its file."""
        for sink in range(self._sink_count):
            self.paths[sink] = (
                directory / f"{escape_file_name(self._lines.names[sink])}-{number}.jsonl"
            )
        self._fds: dict[int, int] = {}
        """Number of a sink -> its open file."""
        self._record: CommitRecord | None = None
        """The commit record on the disk; None if it has to be read."""
        self.outputs = 0
        """Outputs of this barrier delivered so far, without dead letters, in all runs that wrote
        to the directory. Thread-safe to read."""
        self.failures = 0
        """Dead letters of this barrier delivered so far, in the same runs. Thread-safe to read."""
        self._has_discarded = False
        """Whether this process has removed the uncommitted data of an earlier one."""
        try:
            with translate_os_errors("output", directory):
                self._load_record()
        except BaseException:
            self.close()
            raise

    def deliver(self, bundle: Bundle) -> None:
        """Append the bundle's lines and commit them."""
        with translate_os_errors("output", self.directory):
            previous = self._load_record()
            if bundle.t_last <= previous.last.t_last:
                return
            encoded = list(map(self._lines.encode_item, items_of(bundle, self._sink_count)))
            items = [item for item, _ in encoded]
            text_by_sink = _join_lines(encoded)
            self.discard()
            # If one of the next steps fails, the record has to be read again.
            self._record = None
            files = {name: (length, checksum) for name, length, checksum in previous.files}
            for sink, text in text_by_sink.items():
                name = self._name(sink)
                length, checksum = files.get(name, (0, 0))
                self._append(sink, length, text)
                files[name] = length + len(text), crc32(text, checksum)
            committed = tuple((name, *file) for name, file in files.items())
            updated = previous.with_bundle(bundle, items, committed)
            replace_file(self._record_path, updated.encode())
            self._record = updated
            self.outputs, self.failures = updated.outputs, updated.failures
        if self._on_failures is not None:
            self._on_failures([item for item in items if item.sink == FAILURES])

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        """Return the last committed bundle."""
        with translate_os_errors("output", self.directory):
            return self._load_record().last_for_groups(groups, str(self.directory))

    def close(self) -> None:
        """Close the files and release the lock on them."""
        for file in self._fds.values():
            os.close(file)
        self._fds.clear()
        self._record = None
        self._claim.close()

    def _append(self, sink: int, length: int, text: bytes) -> None:
        """Write the text durably to a sink's file, after the first `length` bytes."""
        file = self._file(sink)
        write_at(file, text, length)
        os.fdatasync(file)

    def _name(self, sink: int) -> str:
        return str(self.paths[sink].relative_to(self.directory))

    def _file(self, sink: int) -> int:
        if sink not in self._fds:
            path = self.paths[sink]
            make_directory(path.parent)
            self._fds[sink] = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            sync_directory(path.parent)
        return self._fds[sink]

    # Recovery.

    def _load_record(self) -> CommitRecord:
        """Return the commit record. Read it if necessary, and check the lengths of the files.

        After a failed delivery, also remove its uncommitted data. Raises StateMismatch.
        """
        if self._record is None:
            record = self._read_record()
            own_files = {self._name(sink): sink for sink in self.paths}
            for name, length, _ in record.files:
                if name not in own_files:
                    raise StateMismatch(
                        f"{self._record_path} lists files of another barrier, such as {name}: it "
                        f"was moved or copied there. {_ADVICE}"
                    )
                if (size := _size(self.paths[own_files[name]])) < length:
                    raise StateMismatch(
                        f"{self.directory / name} has {size} bytes, but {length} were delivered to "
                        f"it: it was changed or removed. {_ADVICE}"
                    )
            for sink in self.paths:
                if sink != FAILURES:  # its file is created with the first dead letter
                    self._file(sink)
            if self._has_discarded:  # a later delivery has failed: remove its data, too
                self._truncate(record)
            self._record = record
            self.outputs, self.failures = record.outputs, record.failures
        return self._record

    def discard(self) -> None:
        """Remove the uncommitted data of an earlier process.

        Only `deliver` calls this method. Until the first delivery the barrier may still reject the
        run, after a look at the last stored bundle; and a rejected run must not change the outputs.
        """
        with translate_os_errors("output", self.directory):
            record = self._load_record()
            if not self._has_discarded:
                self._truncate(record)
                self._has_discarded = True

    def _truncate(self, record: CommitRecord) -> None:
        lengths = {name: length for name, length, _ in record.files}
        for sink, path in self.paths.items():
            if _size(path) or sink != FAILURES:  # its file is created with the first dead letter
                os.ftruncate(self._file(sink), lengths.get(self._name(sink), 0))

    def _read_record(self) -> CommitRecord:
        sync_directory(self._claim.metadata)  # a record must be durable before it is used
        if self._record_path.exists():
            return CommitRecord.decode(self._record_path.read_bytes(), str(self._record_path))
        # The consumer writes a record before any output, so outputs without one mean that it is
        # lost.
        for path in self.paths.values():
            if _size(path):
                raise StateMismatch(
                    f"{path} has outputs, but the record {self._record_path} of delivered outputs "
                    f"is missing. {_ADVICE}"
                )
        replace_file(self._record_path, CommitRecord().encode())
        return CommitRecord()


def open_sink(address: str, context: SinkContext) -> JsonLinesConsumer:
    """Open the files of a barrier in the directory of ``jsonl:DIR``."""
    return JsonLinesConsumer(
        context.directory or Path(address.partition(":")[2]),
        context.barrier,
        context.flow,
        context.identity,
        context.owner,
        context.on_failures,
        context.dead_letters,
    )


def _join_lines(encoded: Sequence[tuple[Item, str]]) -> dict[int, bytes]:
    """Return number of a sink -> the text to append to its file."""
    lines: dict[int, list[bytes]] = {}
    for item, line in encoded:
        lines.setdefault(item.sink, []).append(f"{line}\n".encode())
    return {sink: b"".join(parts) for sink, parts in lines.items()}


def describe_damage(directory: Path, number: int) -> list[str]:
    """Return a sentence for each problem of the committed outputs of barrier `number`.

    Raises StateMismatch if the commit record is damaged, OSError.
    """
    record = directory / ".driftline" / f"barrier-{number}.progress"
    if not record.exists():
        return [
            f"{path} has outputs, but the record {record} of delivered outputs is missing. "
            f"{_ADVICE}"
            for path in sorted(directory.glob(f"*-{number}.jsonl"))
            if _size(path)
        ]
    committed = CommitRecord.decode(record.read_bytes(), str(record))
    for name, _, _ in committed.files:
        if not name.endswith((f"-{number}.jsonl", f"/{number}.jsonl")):
            return [f"{record} lists files of another barrier, such as {name}. {_ADVICE}"]
    return damaged_files(directory, committed)


def damaged_files(directory: Path, record: CommitRecord) -> list[str]:
    """Return a sentence for each file that differs from the record. Raises OSError."""
    problems = []
    for name, length, checksum in record.files:
        path = directory / name
        size = _size(path)
        if not path.exists():
            problems.append(f"{path} is missing; {length} bytes were delivered to it. {_ADVICE}")
        elif size < length:
            problems.append(
                f"{path} has {size} bytes, but {length} were delivered to it. {_ADVICE}"
            )
        elif checksum_of(path, length) != checksum:
            problems.append(
                f"{path} differs from the delivered outputs: it was changed or damaged. {_ADVICE}"
            )
    return problems


def uncommitted_bytes(directory: Path, number: int, record: CommitRecord) -> int:
    """Return the number of uncommitted bytes in the files of barrier `number`.

    `record`: its commit record. Counts only the files that the record lists, and the dead letters.
    """
    lengths = {directory / name: length for name, length, _ in record.files}
    # The record lacks this file until the first dead letter is committed.
    lengths.setdefault(directory / DEAD_LETTERS / f"{number}.jsonl", 0)
    return sum(max(0, _size(path) - length) for path, length in lengths.items())


def checksum_of(path: Path, length: int) -> int:
    """Return the checksum of the first `length` bytes of a file, or of all if it has fewer.

    Raises OSError.
    """
    checksum = 0
    if length:
        with path.open("rb") as file:
            while data := file.read(min(length, _READ_BYTES)):
                checksum = crc32(data, checksum)
                length -= len(data)
    return checksum


_READ_BYTES = 1 << 20

_ADVICE = "Restore it from a copy, or start over: --fresh removes the state and the outputs"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
