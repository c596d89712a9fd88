"""Wheels with the modules of submitted flows: stored in the tree, and fetched by every host.

Python imports a pure wheel directly from its file. `store_wheel` stores the bytes in pieces, as
ZooKeeper limits the size of a znode. `fetch_wheel` writes them to a file once on each host; the
checksum is the name of the file.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from driftline.deploy.cluster.records import Submission
from driftline.deploy.cluster.zookeeper_tree import FLOWS, NEW, WriteConflict, ZooKeeperTree
from driftline.engine.durable import make_directory, replace_file
from driftline.engine.errors import FlowError, StateMismatch, Unavailable

PIECE_BYTES = 512 << 10
"""Size of a piece of a wheel, except of its last one."""

WHEEL_BYTES_MAX = 64 << 20

_PURE = b"Root-Is-Purelib: true"


@contextmanager
def importable_wheel(wheel: Path | None) -> Iterator[None]:
    """Make a wheel importable within this context; None: do nothing.

    Raises FlowError if hosts cannot import from the wheel.
    """
    if wheel is None:
        yield
        return
    check_wheel(wheel)
    sys.path.append(str(wheel.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(wheel.resolve()))


@contextmanager
def importable_submission(
    tree: ZooKeeperTree, submission: Submission, folder: Path
) -> Iterator[None]:
    """Make the modules in a submission's wheel, if it has one, importable within this context.

    `folder`: the folder of this host to store the wheel in. Raises Unavailable, StateMismatch.
    """
    previous_path = sys.path[:]
    if submission.wheel:
        sys.path.append(str(fetch_wheel(tree, submission.name, submission.wheel, folder)))
    try:
        yield
    finally:
        sys.path[:] = previous_path


def check_wheel(wheel: Path) -> None:
    """Raise FlowError if a file is not a pure Python wheel, or is too large."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
            is_pure = len(names) == 1 and _PURE in archive.read(names[0])
    except (OSError, zipfile.BadZipFile) as error:
        raise FlowError(f"{wheel} is not a wheel: {error}") from None
    if not is_pure:
        raise FlowError(
            f"{wheel} is not a pure Python wheel: install it on every host, and submit the flow "
            "without --wheel"
        )
    if wheel.stat().st_size > WHEEL_BYTES_MAX:
        raise FlowError(
            f"{wheel} has more than {WHEEL_BYTES_MAX >> 20} MiB: install it on every host, and "
            "submit the flow without --wheel"
        )


def store_wheel(tree: ZooKeeperTree, flow: str, wheel: Path) -> str:
    """Store a wheel in the tree for a flow. Return its name there: CHECKSUM-PIECES.

    Raises FlowError, Unavailable.
    """
    check_wheel(wheel)
    data = wheel.read_bytes()
    checksum = sha256(data).hexdigest()[:32]
    pieces = [data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES)]
    for number, piece in enumerate(pieces):
        try:
            tree.write(f"{FLOWS}/{flow}/wheels/{checksum}/{number:04}", piece, NEW)
        except WriteConflict:
            continue  # an earlier submission stored the same piece
    return f"{checksum}-{len(pieces)}"


def fetch_wheel(tree: ZooKeeperTree, flow: str, name: str, folder: Path) -> Path:
    """Fetch a flow's wheel, unless this host has it. Return its file.

    `name`: the result of `store_wheel`; `folder`: the folder of the file. Raises Unavailable;
    StateMismatch if the stored wheel is damaged.
    """
    checksum, _, count = name.partition("-")
    file = folder / f"{checksum}.whl"
    if file.is_file():
        return file
    pieces = []
    for number in range(int(count)):
        piece = tree.read(f"{FLOWS}/{flow}/wheels/{checksum}/{number:04}")
        if piece is None:
            raise Unavailable(f"{tree.where} has only a part of the wheel of flow {flow!r}")
        pieces.append(piece.data)
    data = b"".join(pieces)
    if sha256(data).hexdigest()[:32] != checksum:
        raise StateMismatch(f"the wheel of {flow!r} in {tree.where} is damaged: submit it again")
    try:
        make_directory(folder)
        replace_file(file, data)
    except OSError as error:
        raise Unavailable(f"{file}: {error.strerror}") from None
    return file
