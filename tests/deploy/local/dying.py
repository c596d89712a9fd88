"""`driftline`, whose masters are killed (signal 9) at each step of the shutdown.

``python -m tests.deploy.local.dying FOLDER KINDS run ...``: a master dies at a point at which no
master has died before, and leaves a file with the name of the point in the folder: ``write`` and
``written`` (the outcome), ``Stop sent N`` and ``Goodbye taken N``. KINDS are the first words of the
points, with commas between them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import driftline.deploy.runtime.process
from driftline import main
from driftline.coordinator.registry import ClusterState, FileRegistry
from driftline.deploy.roles.master import Master
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.supervision.child import command
from driftline.deploy.runtime.supervision.cluster import MODULE
from driftline.engine.wire.messages import Goodbye, Message, Stop, decode
from driftline.engine.wire.role import Role

FOLDER, KINDS = "DYING_FOLDER", "DYING_KINDS"

counted: Counter[str] = Counter()


def die_at(point: str, context: Runtime | None = None) -> None:
    """Die, if no master has died here; with a runtime, once its messages have left."""
    if point.split()[0] not in os.environ[KINDS].split(","):
        return
    try:
        (Path(os.environ[FOLDER]) / point).touch(exist_ok=False)
    except FileExistsError:
        return
    if context is not None:
        context._context.destroy(linger=5000)
    os.kill(os.getpid(), signal.SIGKILL)


def point_of(message: Message, what: str) -> str:
    """The name of a point; empty for messages that are not of the shutdown."""
    if not isinstance(message, Stop | Goodbye):
        return ""
    kind = f"{type(message).__name__} {what}"
    counted[kind] += 1
    return f"{kind} {counted[kind]}"


class DyingRegistry(FileRegistry):
    """Dies before and after the outcome is written."""

    def write(self, state: ClusterState, *, again: bool = False) -> None:
        if state.outcome is not None:
            die_at("write")
        super().write(state, again=again)
        if state.outcome is not None:
            die_at("written")


class DyingMaster(Master):
    """Dies before it takes a message."""

    def handle(self, sender: str, message: Message) -> None:
        if point := point_of(message, "taken"):
            die_at(point)
        super().handle(sender, message)


class DyingRuntime(Runtime):
    """Dies when a message has left, and nothing after it."""

    def _send(self, party: Role, to: str, data: bytes) -> None:
        super()._send(party, to, data)
        if point := point_of(decode(data)[1], "sent"):
            die_at(point, self)


def run_process(config: str) -> int:
    """As `deploy.runtime.process` does."""
    with (
        patch("driftline.deploy.runtime.master_process.FileRegistry", DyingRegistry),
        patch("driftline.deploy.runtime.master_process.Master", DyingMaster),
        patch("driftline.deploy.runtime.master_process.Runtime", DyingRuntime),
    ):
        return driftline.deploy.runtime.process.main(config)


def _dying(module: str, *arguments: object) -> list[str]:
    """What to execute instead of a node or the master: this file."""
    if module != MODULE:
        return command(module, *arguments)
    return [sys.executable, "-m", "tests.deploy.local.dying", *map(str, arguments)]


if __name__ == "__main__":
    if FOLDER in os.environ:
        sys.exit(run_process(sys.argv[1]))
    os.environ["PYTHONHASHSEED"] = "0"  # otherwise the command would begin again
    os.environ[FOLDER], os.environ[KINDS], *sys.argv[1:] = sys.argv[1:]
    with patch("driftline.deploy.runtime.supervision.child.command", _dying):
        main()
