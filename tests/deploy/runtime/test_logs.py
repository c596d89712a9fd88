"""Log lines keep their contents, and lines that cannot be written are reported."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from driftline.deploy.runtime.logs import LineFormatter, LogFileHandler


def test_full_log_device_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    handler = LogFileHandler(Path("/dev/full"))
    for _ in range(2):
        handler.handle(logging.makeLogRecord({"msg": "a line"}))
    handler.close()
    reason = "No space left on device; lines are missing from it"
    assert caplog.messages == [f"log file /dev/full: {reason}"]


LOGGING = """
import json, logging, sys
from rich.console import Console
from driftline.deploy.runtime.logs import from_child, log_to, log_to_parent, relay_record

sys.path.append("site-packages")
import library

def work():
    logging.getLogger("shop").info("sold %d", 3, extra={"event": "sale", "customer": "ada"})
    library.connect()
"""


def test_records_of_user_loggers_are_lines_with_their_extra_fields(tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    library = (
        "import logging\nlog = logging.getLogger('library')\n"
        "def connect():\n    log.info('connected')\n    log.warning('slow')\n"
    )
    (tmp_path / "site-packages" / "library.py").write_text(library)
    (tmp_path / "node.py").write_text(f"{LOGGING}\nlog_to_parent('node-7', logging.INFO)\nwork()")
    (tmp_path / "command.py").write_text(
        f"{LOGGING}\nlog_to(Console(stderr=True), 'info', as_json=True)\nwork()\n"
        "for line in sys.stdin.buffer:\n    relay_record(from_child(line[1:], 'node-7'))\n"
    )
    lines = b""
    for script in ("node.py", "command.py"):
        done = subprocess.run(
            [sys.executable, script], cwd=tmp_path, input=lines, capture_output=True, check=True
        )
        lines = done.stderr
    parsed_lines = [json.loads(line) for line in lines.splitlines()]
    assert [(line["process"], line["logger"]) for line in parsed_lines] == [
        ("run", "shop"), ("run", "library"), ("node-7", "shop"), ("node-7", "library"),
    ]  # fmt: skip
    for line in parsed_lines[::2]:
        assert (line["event"], line["fields"]) == ("sale", {"customer": "ada"})


FORGED = "tea\n15:04:05.123 info    run     all is well\r\x1b]0;title\x07\x9b8m\u2028\u202e\x7f"
"""Text with line breaks and control characters that imitates a log line."""


def logged(as_json: bool) -> list[str]:
    """Return the log lines of a record with this text in its message, fields and traceback."""
    try:
        raise ValueError(FORGED)
    except ValueError:
        trace = sys.exc_info()
    attributes = {"msg": "no %s", "args": (FORGED,), "exc_info": trace, "fields": {"name": FORGED}}
    record = logging.makeLogRecord({**attributes, "levelname": "ERROR"})
    return LineFormatter(as_json).format(record).splitlines()


def test_text_record_is_one_line_with_indented_continuation() -> None:
    first, *others = logged(as_json=False)
    assert first.endswith(" error   run     no tea")
    assert all(line.startswith("  ") for line in others)
    assert others[0] == (
        r"  15:04:05.123 info    run     all is well\r\x1b]0;title\x07\x9b8m\u2028\u202e\x7f"
    )
    assert all(line.isprintable() for line in (first, *others))


def test_json_record_is_one_line_and_round_trips() -> None:
    [line] = logged(as_json=True)
    assert line.isprintable()
    parsed = json.loads(line)
    assert parsed["message"].startswith(f"no {FORGED}\nTraceback")
    assert parsed["fields"] == {"name": FORGED}
