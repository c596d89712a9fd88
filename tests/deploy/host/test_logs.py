"""Log lines: what is in them stays in them, and what cannot be written is told."""

from __future__ import annotations

import errno
import json
import logging
import sys
from pathlib import Path

import pytest

from driftline.deploy.host.logs import LineFormatter, ToFile
from driftline.engine.durable import write_at


def test_a_device_without_room_is_told_as_that(caplog: pytest.LogCaptureFixture) -> None:
    handler = ToFile(Path("/dev/full"))
    handler.emit(logging.makeLogRecord({"msg": "a line"}))
    handler.close()
    assert caplog.messages == ["log file /dev/full: No space left on device; it will lack lines"]


def test_lines_that_find_room_now_and_then_are_one_story(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk may have room for a short line; the end is told once all lines get through."""
    whole = write_at

    def short_ones(file: int, data: bytes, at: int) -> None:
        if b"long" in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(file, data, at)

    monkeypatch.setattr("driftline.deploy.host.logs.write_at", short_ones)
    handler = ToFile(tmp_path / "log")
    handler.setFormatter(logging.Formatter("%(message)s"))

    def say(text: str, at: float) -> None:
        record = logging.makeLogRecord({"msg": text})
        record.created = at
        handler.emit(record)

    for number in range(20):
        say("a long line", number / 2)
        say("a line", number / 2 + 0.1)
    assert len(caplog.messages) == 1
    say("a line", 10.5)
    say("a line", 10.7)
    assert caplog.messages[1:] == [
        f"log file {tmp_path / 'log'} can be written again; it lacks 20 lines"
    ]
    say("a long line", 11)
    say("the last line", 11.1)
    handler.close()
    assert len(caplog.messages) == 4
    assert caplog.messages[3].endswith("it lacks 1 lines")
    assert len((tmp_path / "log").read_text().splitlines()) == 20 + 2 + 1


FORGED = "tea\n15:04:05.123 info    run     all is well\r\x1b]0;title\x07\x9b8m\u2028\u202e\x7f"
"""What a record may hold."""


def logged(as_json: bool) -> list[str]:
    """The lines of a record with that text in its message, in its fields, and in a traceback."""
    try:
        raise ValueError(FORGED)
    except ValueError:
        trace = sys.exc_info()
    told = {"msg": "no %s", "args": (FORGED,), "exc_info": trace, "fields": {"name": FORGED}}
    record = logging.makeLogRecord({**told, "levelname": "ERROR"})
    return LineFormatter(as_json).format(record).splitlines()


def test_a_record_is_one_line_for_people_and_what_follows_is_indented() -> None:
    first, *others = logged(as_json=False)
    assert first.endswith(" error   run     no tea")
    assert all(line.startswith("  ") for line in others)
    assert others[0] == (
        r"  15:04:05.123 info    run     all is well\r\x1b]0;title\x07\x9b8m\u2028\u202e\x7f"
    )
    assert all(line.isprintable() for line in (first, *others))


def test_a_record_is_one_line_as_json_and_is_read_as_it_was() -> None:
    [line] = logged(as_json=True)
    assert line.isprintable()
    told = json.loads(line)
    assert told["message"].startswith(f"no {FORGED}\nTraceback")
    assert told["fields"] == {"name": FORGED}
