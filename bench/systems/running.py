"""The base of measured systems: their processes always end with the measurement."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Self

from driftline.deploy.host.children import child


class Running:
    """A context manager that starts on entry; it is closed also if starting fails."""

    def start(self) -> None:
        """Start everything. Raises Unavailable."""
        raise NotImplementedError

    def close(self) -> None:
        """End all processes and remove all files. May be called any number of times."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_module(
    module: str, arguments: Sequence[object], *, stdin: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that runs a module of Driftline."""
    return subprocess.Popen(
        child.command(module, *arguments),
        env={**child.environment(), "PYTHONWARNINGS": "ignore"},
        stdin=stdin,
    )
