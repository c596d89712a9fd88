"""Who kills the process that looks at directories learns as much as who does not, or why not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from driftline.deploy.host.children import child
from driftline.deploy.run.directories.looking import TRIES, look
from driftline.engine.errors import Unavailable
from driftline.engine.events import FIELDS
from tests.deploy.run.directories.test_survey import log_with_entries

KILLED = """
import os, signal, sys
from pathlib import Path
times = Path(sys.argv[1])
left = int(times.read_text())
if left:
    times.write_text(str(left - 1))
    sys.stdout.write('{"role": "node-7", "torn')
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
os.execv(sys.argv[2], sys.argv[2:])
"""

Kill = Callable[[int], None]


@pytest.fixture
def kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kill:
    """Makes the next processes that look die by SIGKILL, so many of them."""
    left = tmp_path / "left"
    command = child.command

    def killed(module: str, *arguments: object) -> list[str]:
        return [sys.executable, "-c", KILLED, str(left), *command(module, *arguments)]

    monkeypatch.setattr(child, "command", killed)

    def kill(times: int) -> None:
        left.write_text(str(times))

    return kill


def test_a_process_that_is_killed_is_followed_by_another(
    tmp_path: Path, kill: Kill, caplog: pytest.LogCaptureFixture
) -> None:
    log_with_entries(tmp_path / "state")
    kill(0)
    wanted = look(tmp_path / "state", None)
    assert [report.role for report in wanted] == ["input-0"]
    kill(TRIES - 1)
    assert look(tmp_path / "state", None) == wanted
    told = [getattr(record, FIELDS) for record in caplog.records]
    assert [fields["tries"] for fields in told] == list(range(1, TRIES))
    assert {(fields["event"], fields["signal"]) for fields in told} == {
        ("looking-again", "SIGKILL")
    }


def test_one_that_is_killed_each_time_is_told_of(tmp_path: Path, kill: Kill) -> None:
    kill(TRIES)
    with pytest.raises(Unavailable, match=f"ended by SIGKILL, {TRIES} times in a row"):
        look(tmp_path / "state", None)
