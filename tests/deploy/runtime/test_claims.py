"""Claims on a directory that another process may still have."""

from pathlib import Path
from threading import Timer
from unittest.mock import patch

import pytest

from driftline.deploy.runtime import claims
from driftline.engine.durable import Lock
from driftline.engine.errors import InUse


def test_waiting_for_a_claimed_directory_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.lock"
    held = Lock(path, "taken")
    ending = Timer(0.3, held.release)
    with patch.object(claims, "SOON_S", 0.05):
        ending.start()
        claims.claim(path).release()
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path} is in use: waiting for up to 10 s")


def test_immediate_claim_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run.lock"
    with patch.object(claims, "CLAIM_S", 0.0):
        held = claims.claim(path)
        assert not caplog.records
        with pytest.raises(InUse, match="in use by another run"):
            claims.claim(path)
        held.release()
