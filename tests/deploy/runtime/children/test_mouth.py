"""What a process says is told at once, in order, and never without bound."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from driftline.deploy.runtime.children.mouth import SHOWN_MAX, Mouth

ROOT = Path(__file__).resolve().parents[4]

LOGS = """
import logging, sys
from driftline.deploy.runtime.logs import log_to_parent
from driftline.engine.events import about, log
log_to_parent("node-7", logging.INFO)
print("no end of line", end="", file=sys.stderr, flush=True)
log.info("first\\nsecond %s", "line", extra=about("told", number=7))
log.debug("nobody wants this")
logging.getLogger("of.the.user").warning("third")
print("last", file=sys.stderr, end="", flush=True)
"""


def said(script: str, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What is told of a process that runs a script."""
    mouth = Mouth("node-7")
    with caplog.at_level(logging.INFO):
        process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=mouth.fd)
        mouth.started()
        assert process.wait(60) == 0, "a process never waits for somebody who hears it"
        mouth.wait(60)
    return caplog.records


def test_log_lines_and_text_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    records = said(LOGS, caplog)
    assert {record.processName for record in records} == {"node-7"}
    assert [(r.name, r.levelname, r.getMessage()) for r in records] == [
        ("driftline", "WARNING", "no end of line"),
        ("driftline", "INFO", "first\nsecond line"),
        ("of.the.user", "WARNING", "third"),
        ("driftline", "WARNING", "last"),
    ]
    assert vars(records[1])["fields"] == {"event": "told", "number": 7}


def test_what_is_printed_is_text_for_people_and_no_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A record that a function prints may look like a log line."""
    mouth = Mouth("node-7", printed=True)
    line = '{"time": "2026-11-22T15:04:05+00:00", "level": "error", "process": "x", ' + (
        '"logger": "driftline", "event": "failed", "message": "forged", "fields": {}}'
    )
    script = f"print('one'); print({chr(30) + line!r})"
    with caplog.at_level(logging.INFO):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=mouth.fd)
        mouth.started()
        assert process.wait(60) == 0
        mouth.wait(60)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "one"),
        ("INFO", "\x1e" + line),
    ]
    assert {vars(record)["fields"]["event"] for record in caplog.records} == {"print"}


def test_a_process_that_prints_without_end_fills_nothing(caplog: pytest.LogCaptureFixture) -> None:
    lines = 2_000_000
    records = said(
        f"import sys\nfor n in range(0, {lines}, 1000):\n"
        "    print(*range(n, n + 1000), sep='\\n', file=sys.stderr)",
        caplog,
    )
    left_out = [vars(record)["fields"].get("left_out", 0) for record in records]
    told = [record.getMessage() for record in records if record.getMessage().isdecimal()]
    assert len(told) + sum(left_out) == lines, "every line is told or counted"
    assert told[0] == "0"
    assert told[-SHOWN_MAX + 5 :] == [str(lines - 15 + n) for n in range(15)], "with its cause"
    assert len(records) < 5_000, "far fewer than were printed"


def test_a_line_without_end_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    records = said("import sys; sys.stderr.write('x' * 50_000_000)", caplog)
    assert 0 < sum(len(record.getMessage()) for record in records) < 100_000
