"""If the process that reads directories is killed, that is no damage."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from driftline.deploy.local.directories.inspection import inspect_directories
from driftline.deploy.runtime.supervision import child
from driftline.engine.errors import Unavailable

KILLED = """
import os, signal, sys
sys.stdout.write('{"role": "node-7", "torn')
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_reader_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state" / "node-0").mkdir(parents=True)
    (tmp_path / "state" / "node-0" / "data.mdb").write_bytes(b"")
    monkeypatch.setattr(child, "command", lambda *_: [sys.executable, "-c", KILLED])
    with pytest.raises(Unavailable, match="SIGKILL ended the process that reads it"):
        inspect_directories(tmp_path / "state", None)
