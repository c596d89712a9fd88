"""What is under the meter: processes that are started, fed, drained, and always ended."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Self

from driftline.deploy.host import child


class Running:
    """A context manager that starts on entry, and is closed also when that fails."""

    def start(self) -> None:
        """Start everything. Raises Unavailable."""
        raise NotImplementedError

    def close(self) -> None:
        """End and remove everything; any number of times."""
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
    """Run one of our modules in a process of its own."""
    return subprocess.Popen(
        child.command(module, *arguments),
        env={**child.environment(), "PYTHONWARNINGS": "ignore"},
        stdin=stdin,
    )
