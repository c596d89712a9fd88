"""The LMDB consumer: stores items and t_last in one transaction, and items in label order.

An LMDB environment has one writer, so each barrier has its own environment, ``barrier-<n>`` in one
directory; `read_items` merges them. The key of an item is its label, then its sink, then the number
of the copy. Labels are encoded so that the order of bytes is the order of labels. The copies exist
because `at-least-once` may deliver, and therefore store, an output more than once.

    >>> item_key((1, 0), 0) < item_key((1, 0, 0), 0) < item_key((2, 0), 0)
    True

Cost: one transaction (two fsyncs) for a bundle; some 2 microseconds for an item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from heapq import merge
from operator import itemgetter
from pathlib import Path
from zlib import crc32

import lmdb

from driftline.connectors.sinks.commit_record import CommitRecord
from driftline.connectors.sinks.consumer import LastStored, SinkContext, items_of
from driftline.connectors.sinks.directory import OutputDirectory
from driftline.engine.errors import MalformedMessage, PayloadError, StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import Label
from driftline.engine.operators.steps import FAILURES
from driftline.engine.storage.lmdbs import open_environment, translate_lmdb_errors
from driftline.engine.storage.ownership import NO_OWNER, DirectoryOwner
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack, unpack
from driftline.engine.wire.messages import Bundle

MAP_SIZE = 1 << 36
"""Initial address space in bytes, which doubles when it is full. The file grows on demand."""

KEY_BYTES_MAX = 511
"""LMDB's maximum size of a key."""

_RECORD = b"\xff"
"""Key of the commit record. It sorts after the keys of all items, whose first byte is a length."""


class LmdbConsumer:
    """The environment of one barrier in a directory that all barriers share.

    Args:
        path: The directory; created if missing.
        barrier: The name of the barrier. The name of its environment ends with the same number.
        flow: The flow whose outputs are stored.
        identity: The identity of the outputs: flow, inputs and policy.
        owner: The run and its session.
        on_failures: Called after each stored bundle with its dead letters, often an empty list.
        map_size: Initial address space in bytes.

    Raises:
        StateMismatch: If the directory holds outputs of another identity, or if the environment is
            damaged.
        Unavailable: If the directory cannot be written, or if another process writes the outputs
            of this barrier.
    """

    def __init__(
        self,
        path: Path,
        barrier: str,
        flow: Flow,
        identity: str,
        owner: DirectoryOwner = NO_OWNER,
        on_failures: Callable[[Sequence[Item]], None] | None = None,
        *,
        map_size: int = MAP_SIZE,
    ) -> None:
        self._sink_count = len(flow.sinks)
        self._on_failures = on_failures
        self._claim = OutputDirectory(path, barrier, f"LMDB\n{identity}", "*", owner)
        self.path = path / f"barrier-{self._claim.number}"
        self._record: CommitRecord | None = None
        """Copy of the stored commit record; None until it is read, and after a failed write."""
        self.outputs = 0
        """Outputs of this barrier delivered so far, without dead letters, in all runs that wrote
        to the environment."""
        self.failures = 0
        """Dead letters of this barrier delivered so far, in the same runs."""
        try:
            with _translate_errors(self.path):
                self._env = open_environment(self.path, map_size)
            self._load_record()
        except BaseException:
            self._claim.close()
            raise

    def deliver(self, bundle: Bundle) -> None:
        """Write the bundle in one transaction."""
        previous = self._load_record()
        if bundle.t_last <= previous.last.t_last:
            return
        items = items_of(bundle, self._sink_count)
        rows = [(_checked_key(item), pack(item.value)) for item in items]
        self._record = None
        with _translate_errors(self.path):
            while (updated := self._write(rows, bundle, items, previous)) is None:
                self._env.set_mapsize(2 * self._env.info()["map_size"])
        self._record = updated
        self.outputs, self.failures = updated.outputs, updated.failures
        if self._on_failures is not None:
            self._on_failures([item for item in items if item.sink == FAILURES])

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        """Return the last committed bundle."""
        return self._load_record().last_for_groups(groups, str(self.path))

    def close(self) -> None:
        """Close the environment and release the lock on it."""
        self._env.close()
        self._claim.close()

    def _write(
        self,
        rows: list[tuple[bytes, bytes]],
        bundle: Bundle,
        items: Sequence[Item],
        previous: CommitRecord,
    ) -> CommitRecord | None:
        """Write the rows and the commit record in one transaction.

        Return None, and write nothing, if the address space is full.
        """
        checksum = previous.checksum
        try:
            with self._env.begin(write=True) as txn:
                for key, value in rows:
                    copy_number = 0
                    while not txn.put(key + _encode_number(copy_number), value, overwrite=False):
                        copy_number += 1
                    checksum = _with_row(checksum, key + _encode_number(copy_number), value)
                record = previous.with_bundle(bundle, items, checksum=checksum)
                txn.put(_RECORD, record.encode())
        except lmdb.MapFullError:
            return None
        return record

    def _load_record(self) -> CommitRecord:
        if self._record is None:
            with _translate_errors(self.path), self._env.begin() as txn:
                data = txn.get(_RECORD)
            record = CommitRecord() if data is None else CommitRecord.decode(data, str(self.path))
            self._record = record
            self.outputs, self.failures = record.outputs, record.failures
        return self._record


def open_sink(address: str, context: SinkContext) -> LmdbConsumer:
    """Open the environment of a barrier in the directory of ``lmdb:DIR``."""
    return LmdbConsumer(
        context.directory or Path(address.partition(":")[2]),
        context.barrier,
        context.flow,
        context.identity,
        context.owner,
        context.on_failures,
    )


def read_items(path: Path) -> Iterator[Item]:
    """Yield the outputs of all barriers in a directory.

    Do not call this function in a process that has a consumer of this directory open: a process
    must not open an LMDB environment twice.

    Args:
        path: The directory.

    Yields:
        The outputs in label order.

    Raises:
        Unavailable: If there are no outputs, or if reading them fails.
        StateMismatch: If the outputs are damaged.
    """
    paths = sorted(path.glob("barrier-*"))
    if not paths:
        raise Unavailable(f"{path} holds no outputs: is it the --output directory of a run?")
    with ExitStack() as stack:
        rows = [stack.enter_context(_open_rows(environment)) for environment in paths]
        for key, value in merge(*rows, key=itemgetter(0)):
            yield _item(path, key, value)


def read_environment(path: Path) -> Iterator[Item]:
    """Yield the items of one barrier in label order; `path`: its environment, `barrier-<n>`.

    Raises as `read_items` does.
    """
    with _open_rows(path) as rows:
        for key, value in rows:
            yield _item(path, key, value)


def _item(path: Path, key: bytes, value: bytes) -> Item:
    try:
        label, sink = _decode_key(key)
        return Item(label, sink, unpack(value))
    except MalformedMessage as error:
        raise StateMismatch(f"{path}: the output {key.hex()} is damaged: {error}") from None


@contextmanager
def _open_reader(path: Path) -> Iterator[lmdb.Transaction]:
    with (
        _translate_errors(path),
        lmdb.open(str(path), map_size=0, readonly=True) as env,
        env.begin() as txn,
    ):
        yield txn


@contextmanager
def _open_rows(path: Path) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    with _open_reader(path) as txn, txn.cursor() as cursor:
        yield ((bytes(k), bytes(v)) for k, v in cursor.iternext() if k != _RECORD)


def read_commit_record(path: Path) -> CommitRecord:
    """Return the commit record of a barrier's environment. Raises as `read_items` does."""
    with _open_reader(path) as txn:
        data = txn.get(_RECORD)
    return CommitRecord() if data is None else CommitRecord.decode(bytes(data), str(path))


def describe_damage(path: Path) -> list[str]:
    """Return a list with one sentence if a barrier's committed outputs are damaged, else [].

    Raises as `read_items` does.
    """
    count = checksum = 0
    with _open_rows(path) as rows:
        for key, value in rows:
            count += 1
            checksum = _with_row(checksum, key, value)
    record = read_commit_record(path)
    if (record.outputs + record.failures, record.checksum) == (count, checksum):
        return []
    problem = (
        f"output {path} differs from the delivered outputs: it was changed or damaged. Restore it"
    )
    return [problem]


def _with_row(checksum: int, key: bytes, value: bytes) -> int:
    """Return the checksum of rows after one more row.

    The checksum is the sum of the rows' checksums, so it does not depend on the order of rows: the
    consumer writes rows in the order of bundles, and a reader reads them in the order of labels.
    """
    return (checksum + crc32(value, crc32(key))) & (1 << 63) - 1


def item_key(label: Label, sink: int) -> bytes:
    """Return the key of an item without the number of the copy. Keys sort in label order."""
    return b"".join(map(_encode_number, label)) + b"\0" + _encode_number(sink + 1)


def _encode_number(number: int) -> bytes:
    """Encode a number: one byte with its length in bytes plus 1, then the number, big-endian.

    So numbers with more bytes sort later, and no encoded number begins with the zero byte that ends
    a label.
    """
    length = (number.bit_length() + 7) // 8
    return bytes((length + 1,)) + number.to_bytes(length, "big")


def _decode_key(key: bytes) -> tuple[Label, int]:
    label: list[int] = []
    at = 0
    while key[at : at + 1] > b"\0":
        end = at + key[at]
        label.append(int.from_bytes(key[at + 1 : end], "big"))
        at = end
    sink = key[at + 2 : at + 1 + key[at + 1]] if len(key) > at + 1 else b""
    return tuple(label), int.from_bytes(sink, "big") - 1


def _checked_key(item: Item) -> bytes:
    key = item_key(item.label, item.sink)
    if len(key) > KEY_BYTES_MAX - 9:  # the number of the copy takes up to 9 bytes
        raise PayloadError(
            f"LMDB cannot store an output whose label has {len(item.label)} numbers, "
            f"{list(item.label[:4])}...: chain fewer operators that emit several outputs for an "
            "element, or write JSON lines"
        )
    return key


def _translate_errors(path: Path) -> AbstractContextManager[None]:
    return translate_lmdb_errors(f"output {path}", StateMismatch)
