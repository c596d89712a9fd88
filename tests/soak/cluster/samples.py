"""Samples of all processes of a cluster, and of its data in ZooKeeper and on disk."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

import psutil
from kazoo.client import KazooClient

from driftline.coordinator.zookeeper import connect
from tests.deploy.cluster.lab import Lab
from tests.soak.live.samples import Samples


class ClusterSamples(Samples):
    """Samples of a lab; processes are named HOST/agent-KIND or HOST/ROLE."""

    def take_all(self, at_s: float, lab: Lab) -> None:
        """Take a sample of each process on all hosts."""
        for host in lab.hosts.values():
            agents = {agent.pid: kind for kind, agent in host.agents.items()}
            for pid in host.pids():
                with suppress(psutil.Error):
                    process = psutil.Process(pid)
                    kind = agents.get(pid)
                    role = f"agent-{kind}" if kind else process.name()
                    # Nodes have other numbers after a rescale.
                    self.note(at_s, f"{host.name}/{role.partition('-')[0] if not kind else role}",
                              process)  # fmt: skip


def z_nodes(zookeeper: str) -> dict[str, int]:
    """Return the number of znodes beneath each path with children."""
    client = connect(zookeeper, 5.0)
    found: dict[str, int] = {}
    with closing(client):
        _count(client, "/", found)
        client.stop()
    return found


def _count(client: KazooClient, path: str, found: dict[str, int]) -> None:
    children = client.get_children(path)
    if children:
        found[path] = len(children)
    for child in children:
        _count(client, f"{path.rstrip('/')}/{child}", found)


def sockets(lab: Lab) -> int:
    """Return the number of files in the socket folders of all agents."""
    notes = [host.folder / kind / "sockets" for host in lab.hosts.values() for kind in host.agents]
    return sum(1 for note in notes for _ in Path(note.read_text()).rglob("*"))
