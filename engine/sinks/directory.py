"""The output directory: to which flow it belongs, and which process writes which part of it.

``.driftline/identity`` says whose outputs the directory holds; ``.driftline/<barrier>.mark`` which
run's that barrier's part is, and how new; ``.driftline/<barrier>.lock`` is locked as long as a
process writes that part. The nodes of a run share one directory and may open it at the same moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftline.engine.durable import make_directory, replace_file
from driftline.engine.errors import MalformedMessage, StateMismatch, Unavailable
from driftline.engine.locks import Lock
from driftline.engine.wire.marks import NOBODY, Mark

_FORMAT = "driftline outputs 1"

IDENTITY_S = 60.0
"""How long the others of a run may take to say whose directory it is: they need milliseconds."""

_OF_SPARK = re.compile(r"-spark-[0-9]{5}\.")
"""Outputs of the history before the run, which `driftline spark run` has written there."""


class OutputDirectory:
    """A claim to the part of one barrier; held until it is closed."""

    def __init__(
        self, path: Path, barrier: str, identity: str, foreign: str, mark: Mark = NOBODY
    ) -> None:
        """`foreign`: a pattern of files that a directory which is not ours yet must not hold."""
        self.path = path
        self.number = barrier_number(barrier)
        self.hidden = path / ".driftline"
        self._lock: Lock | None = None
        with reported(path):
            # In this order: whoever of the same run is faster says first whose it is.
            others = sorted(
                other
                for other in path.glob(foreign)
                if other != self.hidden and not _OF_SPARK.search(other.name)
            )
            if others and not (self.hidden / "identity").exists():
                raise StateMismatch(
                    f"{path} holds {others[0].name}, which Driftline has not written there: "
                    "give another --output, or remove it"
                )
            make_directory(self.hidden)
            self._check_identity(f"{_FORMAT}\n{identity}\n".encode())
            self._lock = self._locked(f"barrier-{self.number}")
            try:
                self._check_mark(mark)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Let others write."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _locked(self, name: str, wait_s: float = 0.0) -> Lock:
        taken = (
            f"another process is writing the outputs of {name} to {self.path}: "
            "stop it, or give another --output"
        )
        return Lock(self.hidden / f"{name}.lock", taken, wait_s=wait_s)

    def _check_mark(self, mark: Mark) -> None:
        before = read_mark(self.path, self.number)
        mine = mark.over(before, f"output {self.path}, part {self.number},")
        if mine != before and mine.lineage:
            replace_file(mark_of(self.path, self.number), mine.encode())

    def _check_identity(self, mine: bytes) -> None:
        file = self.hidden / "identity"
        lock = self._locked("identity", IDENTITY_S)
        try:
            if not file.exists():
                replace_file(file, mine)
            elif file.read_bytes() != mine:
                raise StateMismatch(
                    f"{self.path} holds the outputs of another flow, input, policy, format or "
                    "version of Driftline: give another --output, or remove this one"
                )
        finally:
            lock.release()


def mark_of(directory: Path, number: int) -> Path:
    """The file with the mark of a barrier's part."""
    return directory / ".driftline" / f"barrier-{number}.mark"


def read_mark(directory: Path, number: int) -> Mark | None:
    """The mark of a barrier's part, None if there is none. Raises StateMismatch, OSError."""
    file = mark_of(directory, number)
    return Mark.decode(file.read_bytes(), f"output {file}") if file.exists() else None


def barrier_number(barrier: str) -> int:
    """The number of a barrier, which names its files. Raises MalformedMessage.

    A name may have come over a network; as a part of a path it must not lead elsewhere.
    """
    found = re.fullmatch(r"[a-z]+-([0-9]{1,6})", barrier)
    if found is None:
        raise MalformedMessage(f"{barrier!r} is not the name of a barrier")
    return int(found[1])


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Tell what the operating system refuses as Unavailable."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise Unavailable(f"output {where}: {error.strerror or error}") from None
