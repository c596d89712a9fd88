"""Claims on a directory that another process may still have."""

from pathlib import Path
from threading import Timer
from unittest.mock import patch

import pytest

from driftline.deploy.runtime import claims
from driftline.engine.durable import Lock
from driftline.engine.errors import InUse


def test_claim_waits_for_a_process_that_exits_and_fails_if_it_does_not(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    held = Lock(path, "taken")
    with patch.object(claims, "CLAIM_S", 0.0), pytest.raises(InUse, match="in use by another run"):
        claims.claim(path)
    Timer(0.1, held.release).start()
    claims.claim(path).release()
