"""A real `driftline serve`, for a while."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """Serve an index on a free port; gives its address."""
    command = [sys.executable, "-m", "driftline", "serve", "--http", "127.0.0.1:0"]
    folder.mkdir(exist_ok=True)
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--state", str(folder / "state"), *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        found = None
        for line in process.stdout:
            if found := re.match(r"ready: (\S+)", line):
                break
        assert found, (folder / "serve.log").read_text()
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
