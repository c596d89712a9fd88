"""Run `driftline` with masters that are killed (signal 9) at each step of the shutdown.

``python -m tests.deploy.local.dying FOLDER KINDS run ...``: a master kills itself at the first
point at which no earlier master died, and creates a file with the name of the point in the folder:
``write`` and ``written`` (the outcome), ``Stop sent N`` and ``Goodbye taken N``. KINDS are the
first words of the points, separated by commas.
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


def die_once_at(point: str, context: Runtime | None = None) -> None:
    """Kill this process unless a master has died here before; with a runtime, flush it first."""
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
    """Return the name of a point, or an empty string for messages that do not end the run."""
    if not isinstance(message, Stop | Goodbye):
        return ""
    kind = f"{type(message).__name__} {what}"
    counted[kind] += 1
    return f"{kind} {counted[kind]}"


class DyingRegistry(FileRegistry):
    """Registry that kills its process before and after it writes the outcome."""

    def write(self, state: ClusterState, *, again: bool = False) -> None:
        if state.outcome is not None:
            die_once_at("write")
        super().write(state, again=again)
        if state.outcome is not None:
            die_once_at("written")


class DyingMaster(Master):
    """Master that dies before it handles a message."""

    def handle(self, sender: str, message: Message) -> None:
        if point := point_of(message, "taken"):
            die_once_at(point)
        super().handle(sender, message)


class DyingRuntime(Runtime):
    """Runtime that dies directly after it has sent a message."""

    def _send(self, party: Role, to: str, data: bytes) -> None:
        super()._send(party, to, data)
        if point := point_of(decode(data)[1], "sent"):
            die_once_at(point, self)


def run_process(config: str) -> int:
    """Run a process of a run as `deploy.runtime.process` does, with the classes above."""
    with (
        patch("driftline.deploy.runtime.master_process.FileRegistry", DyingRegistry),
        patch("driftline.deploy.runtime.master_process.Master", DyingMaster),
        patch("driftline.deploy.runtime.master_process.Runtime", DyingRuntime),
    ):
        return driftline.deploy.runtime.process.main(config)


def _dying_command(module: str, *arguments: object) -> list[str]:
    """Return the command for a process of the run: this module instead of the usual one."""
    if module != MODULE:
        return command(module, *arguments)
    return [sys.executable, "-m", "tests.deploy.local.dying", *map(str, arguments)]


if __name__ == "__main__":
    if FOLDER in os.environ:
        sys.exit(run_process(sys.argv[1]))
    os.environ["PYTHONHASHSEED"] = "0"  # otherwise the command would restart itself to set it
    os.environ[FOLDER], os.environ[KINDS], *sys.argv[1:] = sys.argv[1:]
    with patch("driftline.deploy.runtime.supervision.child.command", _dying_command):
        main()
