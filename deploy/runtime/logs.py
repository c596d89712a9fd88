"""Log lines: their formats, their transfer from a child to its parent, and a command's handlers.

Lines come from the logger ``driftline``, with fields (`engine.events`), or from loggers of user
code, whose ``extra`` becomes fields. Lines of libraries below a warning are dropped. Every process
uses the same formatter. A child writes each line to its standard error as a JSON object between the
characters RS and LF (a JSON text sequence, RFC 7464). So its parent can distinguish a line from
text that user code prints. The parent passes the line to its own logger of the same name; the
record's `processName` is the name of the child. `run` in Python installs no handler in the caller's
process.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.engine.errors import Unavailable
from driftline.engine.events import FIELDS, event_fields, log
from driftline.engine.operators.user_code import is_user_file
from driftline.engine.texts import escape_json, escape_lines

if TYPE_CHECKING:  # a child has no console, and the import would delay a recovery
    from rich.console import Console

BEGIN = b"\x1e"
"""RS, the character before each log line of a child."""

LEVELS = ("debug", "info", "warning", "error")

COMMAND = "run"
"""Name of a command's own process in its log lines, and in metrics."""

FILE_BYTES, FILES_KEPT = 10 << 20, 3
"""Size in bytes at which a log file is rotated, and the number of older files kept."""

STANDARD_ERROR = 2

MAIN = "MainProcess"
"""Default of `processName` in a log record."""


class LineFormatter(logging.Formatter):
    """Formatter for people, ``15:04:05.123 warning node-0  text``, or for JSON.

    The JSON object has ``time`` (ISO 8601, UTC), ``level``, ``process``, ``logger``, ``event``,
    ``message`` and ``fields``. A record is always one line of JSON; in the form for people, further
    lines of a message are indented. `process`: the name of this process.
    """

    def __init__(self, as_json: bool, process: str = COMMAND) -> None:
        super().__init__()
        self.as_json = as_json
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        process = record.processName
        if process is None or process == MAIN:
            process = self.process
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        level = record.levelname.lower()
        if not self.as_json:
            time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
            return f"{time} {level:<7} {process:<7} {escape_lines(message)}"
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if isinstance(own := fields.pop(FIELDS, {}), dict):
            fields |= own
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": level,
            "process": process,
            "logger": record.name,
            "event": fields.pop("event", "log"),
            "message": message,
            "fields": fields,
        }
        return escape_json(json.dumps(line, ensure_ascii=False, default=str))


_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
"""Attributes of every record; any others come from ``extra``."""

_is_users_file = cache(is_user_file)

_installed: list[logging.Handler] = []
_level = logging.WARNING


def _install(handlers: list[logging.Handler], level: int) -> None:
    """Install handlers for lines of this level and above; drop library lines below a warning."""
    global _level
    logging.basicConfig(level=level, handlers=handlers, force=True)
    for handler in handlers:
        handler.addFilter(_is_wanted)
    _installed[:] = handlers
    _level = level
    log.setLevel(level)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return whether to log a record: a warning or error, or one of Driftline or user code.

    Accepts each record of a child, which has filtered it: such a record has no `pathname`.
    """
    return (
        record.levelno >= logging.WARNING
        or record.name == log.name
        or _is_users_file(record.pathname)
    )


def restore_logging() -> None:
    """Restore Driftline's logging after a flow was loaded, because the flow may configure logging.

    If neither `log_to` nor `log_to_parent` was called, do nothing: the process, and its logging,
    belong to the caller of `driftline.run`.
    """
    if _installed:
        logging.disable(logging.NOTSET)
        log.disabled = False
        log.setLevel(_level)
        root = logging.getLogger()
        for handler in _installed:
            if handler not in root.handlers:
                root.addHandler(handler)


# From a child to its parent -------------------------------------------------------------------


class ToParentHandler(logging.Handler):
    """Handler of a child, which writes records for its parent to the real standard error.

    User code may replace `sys.stderr`.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = BEGIN + self.format(record).encode(errors="replace") + b"\n"
            while line:
                line = line[os.write(STANDARD_ERROR, line) :]
        except OSError:  # the parent has exited, or user code has closed standard error
            pass
        except Exception:
            self.handleError(record)


def log_to_parent(process: str, level: int) -> None:
    """In a child: send all lines of this level and above, also of user code, to the parent."""
    handler = ToParentHandler()
    handler.setFormatter(LineFormatter(as_json=True, process=process))
    _install([handler], level)


def from_child(line: bytes, process: str) -> logging.LogRecord | None:
    """Return the record of a child's line (without its `BEGIN`); None if it is not a log line."""
    try:
        entry = json.loads(line)
        record = {
            "name": str(entry["logger"]),
            "levelno": logging.getLevelNamesMapping()[entry["level"].upper()],
            "levelname": entry["level"].upper(),
            "created": datetime.fromisoformat(entry["time"]).timestamp(),
            "msg": str(entry["message"]),
            "processName": process,
            FIELDS: {"event": entry["event"], **entry["fields"]},
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return logging.makeLogRecord(record)


def relay_record(record: logging.LogRecord) -> None:
    """Pass a child's record to the logger of the same name in this process."""
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


# In a command ---------------------------------------------------------------------------------


class ConsoleHandler(logging.Handler):
    """Handler that prints records above the console's live display."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._console.out(self.format(record), highlight=False)
        except Exception:
            self.handleError(record)


class LogFileHandler(RotatingFileHandler):
    """Handler that writes records to a bounded file. Raises Unavailable if it cannot be opened.

    If a later write fails, as on a full disk, the line is lost; only the first failure is logged.
    """

    def __init__(self, path: Path) -> None:
        self._has_failed = False
        try:
            super().__init__(path, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8")
        except OSError as error:
            raise Unavailable(f"cannot open log file {path}: {error.strerror}") from None

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if self._has_failed or not isinstance(error, OSError):
            return
        self._has_failed = True  # before the warning, which reaches this handler too
        fields = event_fields("log-file", path=self.baseFilename, reason=error.strerror)
        log.warning(
            "log file %s: %s; lines are missing from it",
            *(self.baseFilename, error.strerror),
            extra=fields,
        )

    def close(self) -> None:
        with suppress(OSError):  # unwritten lines are lost
            super().close()


def log_to(console: Console, level: str, as_json: bool = False, file: Path | None = None) -> None:
    """In a command: print lines of this level and above, and optionally write them to a file.

    Raises Unavailable if the file cannot be opened.
    """
    handlers: list[logging.Handler] = [ConsoleHandler(console)]
    if file is not None:
        handlers.append(LogFileHandler(file))
    for handler in handlers:
        handler.setFormatter(LineFormatter(as_json))
    _install(handlers, logging.getLevelNamesMapping()[level.upper()])
