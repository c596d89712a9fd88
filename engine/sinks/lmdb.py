"""The consumer in LMDB: items and t_last in one write transaction, readable in label order.

An LMDB environment has one writer, so each barrier has its own, ``barrier-<n>`` in one directory;
`read_items` merges them. An item's key is its label, written so that the order of bytes is the
order of labels, then its sink, then a number that tells copies apart: `at-least-once` may deliver
an output twice, and what came twice is there twice.

    >>> item_key((1, 0), 0) < item_key((1, 0, 0), 0) < item_key((2, 0), 0)
    True

Cost: one transaction (two fsyncs) for a bundle; some 2 microseconds for an item.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from heapq import merge
from operator import itemgetter
from pathlib import Path

import lmdb

from engine.codec import pack, unpack
from engine.durable import make_directory, sync_directory
from engine.errors import MalformedMessage, PayloadError, StateMismatch, Unavailable
from engine.flow import Flow
from engine.labels import Label
from engine.messages import Bundle
from engine.reference import Item
from engine.sinks.consumer import Last, items_of
from engine.sinks.directory import OutputDirectory
from engine.sinks.progress import Progress

MAP_SIZE = 1 << 36
"""Bytes of address space at first; the file grows only as it is filled, the space if need be."""

KEY_BYTES_MAX = 511

_PROGRESS = b"\xff"
"""After every item: their keys begin with the length of a number."""


class LmdbConsumer:
    """The environment of one barrier. Raises StateMismatch, Unavailable on opening."""

    def __init__(
        self, path: Path, barrier: str, flow: Flow, identity: str, *, map_size: int = MAP_SIZE
    ) -> None:
        self._sinks = len(flow.sinks)
        self._claim = OutputDirectory(path, barrier, f"LMDB\n{identity}", "*")
        self.path = path / f"barrier-{self._claim.number}"
        self._progress: Progress | None = None
        """What is committed; None when that has to be read first."""
        try:
            with _reported(self.path):
                make_directory(self.path)
                self._env = lmdb.open(str(self.path), map_size=map_size)
                sync_directory(self.path)
        except BaseException:
            self._claim.close()
            raise

    def deliver(self, bundle: Bundle) -> None:
        """Write the bundle in one transaction."""
        if bundle.t_last <= self._committed().last.t_last:
            return
        rows = [(_fitting_key(item), pack(item.value)) for item in items_of(bundle, self._sinks)]
        progress = Progress.of(bundle)
        self._progress = None
        with _reported(self.path):
            while not self._write(rows, progress.encode()):
                self._env.set_mapsize(2 * self._env.info()["map_size"])
        self._progress = progress

    def last(self, barrier: str, groups: tuple[int, int]) -> Last:
        """The last committed bundle."""
        return self._committed().of_groups(groups, str(self.path))

    def close(self) -> None:
        """Close the environment and let others write it."""
        self._env.close()
        self._claim.close()

    def _write(self, rows: list[tuple[bytes, bytes]], progress: bytes) -> bool:
        """All or nothing. Returns False if the address space is too small."""
        try:
            with self._env.begin(write=True) as txn:
                for key, value in rows:
                    copy = 0
                    while not txn.put(key + _number(copy), value, overwrite=False):
                        copy += 1
                txn.put(_PROGRESS, progress)
        except lmdb.MapFullError:
            return False
        return True

    def _committed(self) -> Progress:
        if self._progress is None:
            with _reported(self.path), self._env.begin() as txn:
                found = txn.get(_PROGRESS)
            self._progress = Progress() if found is None else Progress.decode(found, str(self.path))
        return self._progress


def read_items(path: Path) -> Iterator[Item]:
    """The items of all barriers in label order; not in a process that has a consumer open there.

    Raises Unavailable if there are none to read, StateMismatch if they are damaged.
    """
    paths = sorted(path.glob("barrier-*"))
    if not paths:
        raise Unavailable(f"{path} holds no outputs: is it the --output directory of a run?")
    with ExitStack() as stack:
        rows = [stack.enter_context(_rows(environment)) for environment in paths]
        for key, value in merge(*rows, key=itemgetter(0)):
            yield _item(path, key, value)


def read_environment(path: Path) -> Iterator[Item]:
    """The items of one barrier, `barrier-<n>`, in label order. Raises as `read_items` does."""
    with _rows(path) as rows:
        for key, value in rows:
            yield _item(path, key, value)


def _item(path: Path, key: bytes, value: bytes) -> Item:
    try:
        label, sink = _from_key(key)
        return Item(label, sink, unpack(value))
    except MalformedMessage as error:
        raise StateMismatch(f"{path}: the output {key.hex()} is damaged: {error}") from None


@contextmanager
def _rows(path: Path) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    with (
        _reported(path),
        lmdb.open(str(path), map_size=0, readonly=True) as env,
        env.begin() as txn,
        txn.cursor() as cursor,
    ):
        yield (row for row in cursor.iternext() if row[0] != _PROGRESS)


def item_key(label: Label, sink: int) -> bytes:
    """The beginning of an item's key: byte order is label order. A zero ends the label."""
    return b"".join(map(_number, label)) + b"\0" + _number(sink + 1)


def _number(number: int) -> bytes:
    """Big-endian with its length before it: what is longer is larger."""
    length = (number.bit_length() + 7) // 8
    return bytes((length + 1,)) + number.to_bytes(length, "big")


def _from_key(key: bytes) -> tuple[Label, int]:
    label: list[int] = []
    at = 0
    while key[at : at + 1] > b"\0":
        after = at + key[at]
        label.append(int.from_bytes(key[at + 1 : after], "big"))
        at = after
    sink = key[at + 2 : at + 1 + key[at + 1]] if len(key) > at + 1 else b""
    return tuple(label), int.from_bytes(sink, "big") - 1


def _fitting_key(item: Item) -> bytes:
    key = item_key(item.label, item.sink)
    if len(key) > KEY_BYTES_MAX - 9:
        raise PayloadError(
            f"LMDB cannot hold an output with a label of {len(item.label)} numbers, "
            f"{list(item.label[:4])}...: use fewer operators in a row that make several outputs, "
            "or write JSON lines"
        )
    return key


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except (lmdb.Error, OSError) as error:
        raise Unavailable(f"output {path}: {error}") from None
