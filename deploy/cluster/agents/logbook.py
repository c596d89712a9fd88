"""The logbook of an agent: the last log lines of itself and of each flow on its host, in files.

Lines are JSON objects, as with ``--log-json``. Those of a flow are kept apart, so that no flow
crowds out those of another. A *place* is the number of bytes of lines before it: the name of a file
is the place of its first line. So a reader can go on where it was, and a file can be removed.

A line belongs to the flow that its field ``flow`` names, or whose thread has said it: threads that
speak for a flow are named `thread_of` it.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from driftline.deploy.host.logs import LineFormatter
from driftline.engine.durable import write_at
from driftline.engine.errors import Unavailable
from driftline.engine.events import FIELDS, about, log

FOLDER = ".logs"
"""In the state directory of the agent; no flow has such a name."""

AGENT_ITSELF = ""
"""In place of a flow: the lines of the agent that are about no flow."""

FILE_BYTES, FILES_KEPT = 2 << 20, 4
"""Of each flow."""

LINE_BYTES = 1 << 16
"""Of a longer line only the beginning is kept."""

PIECE_BYTES = 1 << 20
"""What is read at a time, at most."""

LINES_MAX = 10_000

_THREAD = "flow "


def thread_of(flow: str) -> str:
    """The name of the threads that speak for a flow."""
    return f"{_THREAD}{flow}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines between two places; `more`: there are more of them now."""

    until: int
    more: bool
    lines: bytes


class Logbook(logging.Handler):
    """Keeps lines in a state directory. Raises Unavailable if it cannot be written now."""

    def __init__(self, state: Path) -> None:
        super().__init__()
        self.setFormatter(LineFormatter(as_json=True, process="agent"))
        self._folder = state / FOLDER
        self._files: dict[str, _File] = {}
        self._lost = 0
        """Lines since one could be written last."""
        try:
            self._file(AGENT_ITSELF)
        except OSError as error:
            raise Unavailable(f"{self._folder}: {error.strerror}") from None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record).encode(errors="replace")
            if len(line) >= LINE_BYTES:
                line = self.format(_shortened(record)).encode(errors="replace")
            self._file(_flow_of(record)).append(line + b"\n")
        except OSError as error:
            self._lost += 1
            if self._lost == 1:  # this line comes here, too
                log.warning(
                    "%s: %s; `driftline logs` will lack lines",
                    *(self._folder, error.strerror),
                    extra=about("logbook", path=str(self._folder), reason=error.strerror),
                )
        except Exception:
            self.handleError(record)
        else:
            lost, self._lost = self._lost, 0
            if lost:
                log.warning(
                    "%s can be written again; it lacks %d lines",
                    *(self._folder, lost),
                    extra=about("logbook-over", path=str(self._folder), count=lost),
                )

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        super().close()

    def read(self, flow: str, since: int, lines: int) -> Piece:
        """Lines of a flow from a place on; -1: the last ones. Any thread may call this.

        Raises Unavailable.
        """
        name = _folder_of(flow)
        try:
            if name not in os.listdir(self._folder):  # of a name from the network, no path is made
                return Piece(0, False, b"")
            return _read(self._folder / name, since, min(lines, LINES_MAX))
        except OSError as error:
            raise Unavailable(f"{self._folder}: {error.strerror}") from None

    def _file(self, flow: str) -> _File:
        if flow not in self._files:
            self._files[flow] = _File(self._folder / _folder_of(flow))
        return self._files[flow]


class _File:
    """The file that lines of one flow are appended to; a new one once it is large."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        places = _places(folder)
        self._start = places[-1] if places else 0
        self._file = self._opened()
        data = os.pread(self._file, FILE_BYTES + LINE_BYTES, 0)
        self._length = data.rfind(b"\n") + 1  # the end of a line may lack: the agent was killed
        os.ftruncate(self._file, self._length)

    def append(self, line: bytes) -> None:
        """Append a line, or nothing. Raises OSError."""
        if self._length + len(line) > FILE_BYTES:
            self._begin_another()
        try:
            write_at(self._file, line, self._length)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._length)
            raise
        self._length += len(line)

    def close(self) -> None:
        os.close(self._file)

    def _begin_another(self) -> None:
        before, start = self._file, self._start
        self._start += self._length
        try:
            self._file = self._opened()
        except OSError:
            self._start = start
            raise
        self._length = 0
        os.close(before)
        for place in _places(self._folder)[:-FILES_KEPT]:
            _path(self._folder, place).unlink(missing_ok=True)

    def _opened(self) -> int:
        return os.open(_path(self._folder, self._start), os.O_RDWR | os.O_CREAT, 0o600)


def _read(folder: Path, since: int, lines: int) -> Piece:
    """Lines from a place on, or the last ones. Raises OSError."""
    places = _places(folder)
    if not places:
        return Piece(0, False, b"")
    end = places[-1] + _path(folder, places[-1]).stat().st_size
    if not 0 <= since <= end:
        data = _data(folder, places[-1], 0)
        data = data[: data.rfind(b"\n") + 1]
        until = places[-1] + len(data)
        for place in reversed(places[:-1]):
            if len(data) >= PIECE_BYTES or data.count(b"\n") >= lines:
                break
            data = _data(folder, place, 0) + data
        found = data.splitlines(keepends=True)[-lines:]
        while sum(map(len, found)) > PIECE_BYTES:
            del found[: 1 + len(found) // 10]
        return Piece(until, False, b"".join(found))
    since = max(since, places[0])
    for place, after in zip(places, [*places[1:], end], strict=True):
        if since < after:
            data = _data(folder, place, since - place)[:PIECE_BYTES]
            whole = data[: data.rfind(b"\n") + 1]
            return Piece(since + len(whole), bool(whole) and since + len(whole) < end, whole)
    return Piece(end, False, b"")


def _data(folder: Path, place: int, offset: int) -> bytes:
    """What a file has from there on; nothing if it was removed meanwhile."""
    try:
        with _path(folder, place).open("rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:
        return b""


def _places(folder: Path) -> list[int]:
    names = [path.stem for path in folder.glob("*.jsonl")]
    return sorted(int(name) for name in names if name.isdecimal())


def _path(folder: Path, place: int) -> Path:
    return folder / f"{place:016d}.jsonl"


def _folder_of(flow: str) -> str:
    return f"flow-{flow}" if flow else "agent"


def _flow_of(record: logging.LogRecord) -> str:
    """The flow that a line is about."""
    thread = record.threadName or ""
    if thread.startswith(_THREAD):  # first: lines of user code may have any fields
        return thread.removeprefix(_THREAD)
    flow = getattr(record, FIELDS, {}).get("flow")
    return flow if isinstance(flow, str) else AGENT_ITSELF


def _shortened(record: logging.LogRecord) -> logging.LogRecord:
    """A line whose message is cut, and that has no fields but its event."""
    fields = getattr(record, FIELDS, {})
    return logging.makeLogRecord(
        {
            **record.__dict__,
            "msg": record.getMessage()[: LINE_BYTES // 16] + " ...",
            "args": (),
            "exc_info": None,
            FIELDS: {"event": fields.get("event", "log")},
        }
    )
