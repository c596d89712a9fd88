"""A log file that cannot be written is told with the reason."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from driftline.deploy.host.logs import ToFile


def test_a_device_without_room_is_told_as_that(caplog: pytest.LogCaptureFixture) -> None:
    handler = ToFile(Path("/dev/full"))
    handler.emit(logging.makeLogRecord({"msg": "a line"}))
    handler.close()
    assert caplog.messages == ["log file /dev/full: No space left on device; it will lack lines"]
