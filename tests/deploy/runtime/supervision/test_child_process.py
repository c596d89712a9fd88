"""A child's output is logged at once, in order and bounded.

A child does not exit on a signal for the whole process group, as a terminal or systemd sends it.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from driftline.deploy.runtime.supervision import child
from driftline.deploy.runtime.supervision.child_process import (
    LINES_MAX,
    ChildOutput,
    block_termination_signals,
)

ROOT = Path(__file__).resolve().parents[4]

EXIT_TIMEOUT_S = 30.0

LOGS = """
import logging, sys
from driftline.deploy.runtime.logs import log_to_parent
from driftline.engine.events import event_fields, log
log_to_parent("node-7", logging.INFO)
print("no end of line", end="", file=sys.stderr, flush=True)
log.info("first\\nsecond %s", "line", extra=event_fields("told", number=7))
log.debug("nobody wants this")
logging.getLogger("of.the.user").warning("third")
print("last", file=sys.stderr, end="", flush=True)
"""


def log_records_of(
    script: str, caplog: pytest.LogCaptureFixture, *, is_stdout: bool = False
) -> list[logging.LogRecord]:
    """Run a script as a child and return the log records of its output."""
    output = ChildOutput("node-7", is_stdout=is_stdout)
    with caplog.at_level(logging.INFO):
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=ROOT,
            stdout=output.fd if is_stdout else None,
            stderr=None if is_stdout else output.fd,
        )
        output.on_child_started()
        assert process.wait(60) == 0, "a process never waits until its output is read"
        output.wait(60)
    return caplog.records


def test_log_lines_and_plain_text_are_distinguished(caplog: pytest.LogCaptureFixture) -> None:
    records = log_records_of(LOGS, caplog)
    assert {record.processName for record in records} == {"node-7"}
    assert [(r.name, r.levelname, r.getMessage()) for r in records] == [
        ("driftline", "WARNING", "no end of line"),
        ("driftline", "INFO", "first\nsecond line"),
        ("of.the.user", "WARNING", "third"),
        ("driftline", "WARNING", "last"),
    ]
    assert vars(records[1])["fields"] == {"event": "told", "number": 7}


def test_printed_text_is_not_parsed_as_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A record that a function prints may look like a log line."""
    line = '{"time": "2026-11-22T15:04:05+00:00", "level": "error", "process": "x", ' + (
        '"logger": "driftline", "event": "failed", "message": "forged", "fields": {}}'
    )
    script = f"print('one'); print({chr(30) + line!r})"
    records = log_records_of(script, caplog, is_stdout=True)
    assert [(r.levelname, r.getMessage()) for r in records] == [
        ("INFO", "one"),
        ("INFO", "\x1e" + line),
    ]
    assert {vars(record)["fields"]["event"] for record in records} == {"print"}


def test_endless_output_is_rate_limited(caplog: pytest.LogCaptureFixture) -> None:
    lines = 40_000
    records = log_records_of(
        f"import sys\nfor n in range(0, {lines}, 1000):\n"
        "    print(*range(n, n + 1000), sep='\\n', file=sys.stderr)",
        caplog,
    )
    left_out = [vars(record)["fields"].get("left_out", 0) for record in records]
    messages = [record.getMessage() for record in records if record.getMessage().isdecimal()]
    assert len(messages) + sum(left_out) == lines, "every line is logged or counted"
    assert messages[0] == "0"
    assert len(records) < 20 * LINES_MAX, "far fewer lines than were printed"


def test_endless_line_is_truncated(caplog: pytest.LogCaptureFixture) -> None:
    records = log_records_of("import sys; sys.stderr.write('x' * 5_000_000)", caplog)
    assert 0 < sum(len(record.getMessage()) for record in records) < 1_000_000


def test_starting_child_ignores_signals() -> None:
    with block_termination_signals():
        process = subprocess.Popen(
            child.command("json.tool"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    for pause_s in (0.3, 0.0):
        for number in child.TERMINATION_SIGNALS:
            process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause_s)
    log_records_of, _ = process.communicate("[]", timeout=EXIT_TIMEOUT_S)
    assert (process.returncode, log_records_of) == (0, "[]\n")


def test_parent_handles_signals_received_while_they_are_blocked() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
    try:
        with block_termination_signals():
            signal.raise_signal(signal.SIGHUP)
            assert not heard
        assert heard == [signal.SIGHUP]
    finally:
        signal.signal(signal.SIGHUP, before)
