"""Run a process; masters stop at each failpoint that no earlier master has reached.

A failpoint is before or after a call of the registry or of the queue of masters, before a message
is handled, or after a message is sent; its name contains the phase of the run.
``failpoints(folder)`` lets the children of this process run this module. The folder has a file for
each reached failpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from unittest.mock import patch

from msgspec.structs import fields

import driftline.deploy.runtime.process
from driftline.coordinator.registry import ClusterState
from driftline.coordinator.zookeeper import LeaderQueue, ZooKeeperRegistry
from driftline.deploy.roles.candidate import Candidate
from driftline.deploy.roles.master import Master
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.supervision.child import command
from driftline.deploy.runtime.supervision.cluster import MODULE
from driftline.engine.wire.messages import Message, decode
from driftline.engine.wire.role import IOJob, Role

FOLDER = "FAILPOINTS"


@contextmanager
def failpoints(folder: Path) -> Iterator[None]:
    """Give failpoints to the children of this process; record reached ones in a folder."""

    def command_with_failpoints(module: str, *arguments: object) -> list[str]:
        chosen = command(module, *arguments)
        if module != MODULE:
            return chosen
        return [sys.executable, "-m", "tests.deploy.runtime.failpoints", *map(str, arguments)]

    with (
        patch("driftline.deploy.runtime.supervision.child.command", command_with_failpoints),
        patch.dict(os.environ),
    ):
        os.environ[FOLDER] = str(folder)
        yield


def reach(point: str) -> None:
    """Stop this process (SIGSTOP) unless a master has reached the failpoint before."""
    try:
        (Path(os.environ[FOLDER]) / point).touch(exist_ok=False)
    except FileExistsError:
        return
    # Only this thread stops at this point; other threads may run a little longer.
    signal.pthread_kill(get_ident(), signal.SIGSTOP)


class FailpointRegistry(ZooKeeperRegistry):
    """Registry with failpoints before and after each read and each write of other fields."""

    before: ClusterState | None = None

    def read(self) -> ClusterState | None:
        reach("before a read")
        self.before = super().read()
        reach("after a read")
        return self.before

    def write(self, state: ClusterState, *, again: bool = False) -> None:
        names = (field.name for field in fields(state))
        changed = [n for n in names if getattr(state, n) != getattr(self.before, n, None)]
        what = " ".join(sorted(set(changed) - {"version"}))
        reach(f"before writing {what}")
        super().write(state, again=again)
        self.before = state
        reach(f"after writing {what}")


class FailpointQueue(LeaderQueue):
    """Queue of masters with failpoints before and after each of its jobs."""

    def execute_job(self, job: IOJob) -> object:
        reach(f"before {type(job).__name__}")
        result = super().execute_job(job)
        reach(f"after {type(job).__name__}")
        return result


class FailpointMaster(Master):
    """Master with failpoints before each kind of message, in each phase."""

    def handle(self, sender: str, message: Message) -> None:
        reach(f"{self.coordinator.phase.name} takes {type(message).__name__}")
        super().handle(sender, message)


class FailpointRuntime(Runtime):
    """Runtime with failpoints after each kind of sent message, in each phase."""

    def _send(self, party: Role, to: str, data: bytes) -> None:
        super()._send(party, to, data)
        assert isinstance(party, Candidate)
        if party.master is not None:
            kind = type(decode(data)[1]).__name__
            reach(f"{party.master.coordinator.phase.name} has sent {kind}")


def run_process(config: str) -> int:
    """Run a process of a run as `deploy.runtime.process` does, with the classes above."""
    with (
        patch("driftline.coordinator.zookeeper.ZooKeeperRegistry", FailpointRegistry),
        patch("driftline.coordinator.zookeeper.LeaderQueue", FailpointQueue),
        patch("driftline.deploy.runtime.master_process.Master", FailpointMaster),
        patch("driftline.deploy.runtime.master_process.Runtime", FailpointRuntime),
    ):
        return driftline.deploy.runtime.process.main(config)


if __name__ == "__main__":
    sys.exit(run_process(sys.argv[1]))
