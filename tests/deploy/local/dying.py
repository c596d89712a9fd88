"""`driftline`, with a master that is killed (signal 9) at a message of the shutdown.

``python -m tests.deploy.dying POINT FILE run ...``: POINT is ``write``, ``written``, or the kind of
a message and which of that kind, as ``Stop-2``: then the master dies when its second `Stop` has
left, or before it takes the second. FILE notes that it died: it does so once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

import driftline.deploy.runtime.process
from driftline import main
from driftline.coordinator.registry import ClusterState, FileRegistry
from driftline.deploy.roles.master import Master
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.supervision.child import command
from driftline.deploy.runtime.supervision.cluster import MODULE
from driftline.engine.wire.messages import Message, decode
from driftline.engine.wire.role import Role

POINT, FILE = "DYING_POINT", "DYING_FILE"


class Death:
    """Dies at one point."""

    def __init__(self, point: str, file: Path) -> None:
        self.point, self.file = point, file
        self.counted: Counter[str] = Counter()

    def at(self, point: str) -> None:
        """Die, if it is here."""
        if point == self.point:
            self.die()

    def is_here(self, message: Message) -> bool:
        """Whether it is at this message; each counts."""
        kind = type(message).__name__
        self.counted[kind] += 1
        return f"{kind}-{self.counted[kind]}" == self.point

    def die(self) -> NoReturn:
        """With signal 9, as one is killed."""
        self.file.write_text(self.point)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")


class DyingRegistry(FileRegistry):
    """Where a run's end is written."""

    death: Death

    def write(self, state: ClusterState, *, again: bool = False) -> None:
        if state.outcome is not None:
            self.death.at("write")
        super().write(state, again=again)
        if state.outcome is not None:
            self.death.at("written")


class DyingMaster(Master):
    """Dies before it takes a message."""

    death: Death

    def handle(self, sender: str, message: Message) -> None:
        if self.death.is_here(message):
            self.death.die()
        super().handle(sender, message)


class DyingRuntime(Runtime):
    """Dies when a message has left, and nothing after it."""

    death: Death

    def _send(self, party: Role, to: str, data: bytes) -> None:
        super()._send(party, to, data)
        if self.death.is_here(decode(data)[1]):
            self._context.destroy(linger=5000)
            self.death.die()


def run_process(config: str) -> int:
    """As `deploy.runtime.process` does."""
    file = Path(os.environ[FILE])
    if json.loads(config)["role"] == "master" and not file.exists():
        death = Death(os.environ[POINT], file)
        DyingRegistry.death = DyingMaster.death = DyingRuntime.death = death
        with (
            patch("driftline.deploy.runtime.master_process.FileRegistry", DyingRegistry),
            patch("driftline.deploy.runtime.master_process.Master", DyingMaster),
            patch("driftline.deploy.runtime.master_process.Runtime", DyingRuntime),
        ):
            return driftline.deploy.runtime.process.main(config)
    return driftline.deploy.runtime.process.main(config)


def _dying(module: str, *arguments: object) -> list[str]:
    """What to execute instead of a node or the master: this file."""
    if module != MODULE:
        return command(module, *arguments)
    return [sys.executable, "-m", "tests.deploy.local.dying", *map(str, arguments)]


if __name__ == "__main__":
    if FILE in os.environ:
        sys.exit(run_process(sys.argv[1]))
    os.environ["PYTHONHASHSEED"] = "0"  # otherwise the command would begin again
    os.environ[POINT], os.environ[FILE], *sys.argv[1:] = sys.argv[1:]
    with patch("driftline.deploy.runtime.supervision.child.command", _dying):
        main()
