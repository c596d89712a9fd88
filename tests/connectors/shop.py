"""Flow in a folder, an installed connector for it, and its command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep


def install_package(folder: Path, module: str) -> None:
    """Install a connector for the scheme `shop`, as another package does."""
    about = folder / "installed" / "shop_connector-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-connector\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[driftline.connectors]\nshop = shop_connector\n")
    (folder / "installed" / "shop_connector.py").write_text(module)


class ConnectorRun:
    """The flow in `shop.py`, and the arguments of its command."""

    def __init__(self, folder: Path, flow: str, *words: str) -> None:
        self.folder = folder
        self._words = words
        (folder / "shop.py").write_text(flow)

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "driftline", "run", "shop.py", *self._words, *more],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder / "installed")},
            stderr=(self.folder / "log").open("ab"),
        )

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def finish(self, *more: str) -> str:
        """Run the command to its end and return its log."""
        assert self.start(*more).wait(timeout=90) == 0, self.log()
        return self.log()

    def until(self, is_true: Callable[[], bool]) -> None:
        end = monotonic() + 60
        while not is_true():
            assert monotonic() < end, self.log()
            sleep(0.02)
