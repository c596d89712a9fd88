"""A process of a run; a master stands still at each failpoint that no master has come to before.

A failpoint is before or after a call of the registry or of the queue of masters, before a message
is taken, or after one was sent; its name has the phase of the run. ``failpoints(folder)`` lets the
children of this process run this module. The folder has a file for each failpoint.
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
from driftline.engine.wire.role import DurableJob, Role

FOLDER = "FAILPOINTS"


@contextmanager
def failpoints(folder: Path) -> Iterator[None]:
    """Let the processes that this one starts have failpoints, which are noted in a folder."""

    def ours(module: str, *arguments: object) -> list[str]:
        chosen = command(module, *arguments)
        if module != MODULE:
            return chosen
        return [sys.executable, "-m", "tests.deploy.runtime.failpoints", *map(str, arguments)]

    with patch("driftline.deploy.runtime.supervision.child.command", ours), patch.dict(os.environ):
        os.environ[FOLDER] = str(folder)
        yield


def come_to(point: str) -> None:
    """Stand still, if no master has been here before."""
    try:
        (Path(os.environ[FOLDER]) / point).touch(exist_ok=False)
    except FileExistsError:
        return
    # To this thread: others of the process may do some more, but nothing after this point.
    signal.pthread_kill(get_ident(), signal.SIGSTOP)


class Registry(ZooKeeperRegistry):
    """Failpoints before and after each read, and each write that changes other fields."""

    before: ClusterState | None = None

    def read(self) -> ClusterState | None:
        come_to("before a read")
        self.before = super().read()
        come_to("after a read")
        return self.before

    def write(self, state: ClusterState, *, again: bool = False) -> None:
        names = (field.name for field in fields(state))
        changed = [n for n in names if getattr(state, n) != getattr(self.before, n, None)]
        what = " ".join(sorted(set(changed) - {"version"}))
        come_to(f"before writing {what}")
        super().write(state, again=again)
        self.before = state
        come_to(f"after writing {what}")


class Queue(LeaderQueue):
    """Failpoints before and after queueing up, and looking who is the first."""

    def execute_job(self, job: DurableJob) -> object:
        come_to(f"before {type(job).__name__}")
        result = super().execute_job(job)
        come_to(f"after {type(job).__name__}")
        return result


class Leader(Master):
    """Failpoints before each kind of message is taken in each phase."""

    def handle(self, sender: str, message: Message) -> None:
        come_to(f"{self.coordinator.phase.name} takes {type(message).__name__}")
        super().handle(sender, message)


class Speaking(Runtime):
    """Failpoints after each kind of message was sent in each phase."""

    def _send(self, party: Role, to: str, data: bytes) -> None:
        super()._send(party, to, data)
        assert isinstance(party, Candidate)
        if party.master is not None:
            kind = type(decode(data)[1]).__name__
            come_to(f"{party.master.coordinator.phase.name} has sent {kind}")


def run_process(config: str) -> int:
    """As `deploy.runtime.process` does."""
    with (
        patch("driftline.coordinator.zookeeper.ZooKeeperRegistry", Registry),
        patch("driftline.coordinator.zookeeper.LeaderQueue", Queue),
        patch("driftline.deploy.runtime.master_process.Master", Leader),
        patch("driftline.deploy.runtime.master_process.Runtime", Speaking),
    ):
        return driftline.deploy.runtime.process.main(config)


if __name__ == "__main__":
    sys.exit(run_process(sys.argv[1]))
