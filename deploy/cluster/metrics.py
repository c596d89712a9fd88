"""The metrics of an agent, and where the processes at it serve theirs.

Takes how the agent is, as its loop tells. Gives samples, its health, and targets for Prometheus. An
agent serves at its own port, and each of its processes at a free port of the same host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from time import monotonic

from driftline.deploy.cluster.hosting import FlowRunner
from driftline.deploy.cluster.records import AgentRole
from driftline.deploy.local.metrics import restarts
from driftline.deploy.runtime.metrics.endpoint import Endpoint, noted_port, port_note
from driftline.deploy.runtime.metrics.roles import our_version
from driftline.engine.meters import Sample

AGENT = "agent"
"""The name of an agent's own process, as in its log lines."""

TURNS_WITHIN_S = 60.0
"""An agent waits for ZooKeeper in its loop; one whose loop has not turned for so long hangs."""


@dataclass(slots=True)
class AgentStatus:
    """How an agent is. Its loop sets the fields, and others read them."""

    name: str
    roles: tuple[AgentRole, ...]
    slots: int
    turned_at: float = field(default_factory=monotonic)
    """When its loop has turned last."""
    unreached: str = "it has not seen the cluster yet"
    """Why it could not read what the cluster holds; "" if it could."""
    hosted: dict[str, FlowRunner] = field(default_factory=dict)
    """Flow -> its processes here."""
    troubles: dict[str, str] = field(default_factory=dict)
    """Flow -> what keeps it from running here."""

    def why_not_healthy(self, now: float) -> str:
        """Why the agent is not healthy; "" if it is."""
        silent = now - self.turned_at
        return f"the agent's loop has not turned for {silent:.0f} s" * (silent > TURNS_WITHIN_S)

    def why_not_ready(self) -> str:
        """Why the agent is not ready; "" if it is."""
        return self.unreached

    def samples(self) -> Iterator[tuple[str, Sample]]:
        """The samples of the agent, with the flow that each is of; "" for none."""
        yield "", ("driftline_process_info", (AGENT, our_version()), 1)
        yield "", ("driftline_agent_info", (self.name, ",".join(self.roles)), 1)
        yield "", ("driftline_agent_reaches_cluster", (), not self.unreached)
        if set(self.roles) != {AgentRole.MASTER}:  # a master takes no place
            yield "", ("driftline_agent_slots", (), self.slots)
        hosted, troubles = self.hosted.copy(), self.troubles.copy()
        for flow in {**hosted, **troubles}:
            yield flow, ("driftline_agent_trouble", (), flow in troubles)
        for flow, hosting in hosted.items():
            cluster = hosting.cluster
            running = cluster.running if cluster is not None else ()
            yield flow, ("driftline_agent_processes", (), len(running))
            if cluster is not None:
                yield from ((flow, sample) for sample in restarts(cluster))

    def targets(self, host: str, port: int) -> list[dict[str, object]]:
        """Where the agent, and each process at it, is to be scraped; `host`: its address."""
        places = [("", AGENT, port)]
        for flow, hosting in self.hosted.copy().items():
            for name in hosting.cluster.pids if hosting.cluster is not None else ():
                role, _, number = name.partition("-")
                noted = noted_port(port_note(hosting.sockets, role, int(number or 0)))
                places += [(flow, name, noted)] if noted else []
        at = f"[{host}]" if ":" in host else host
        return [
            {
                "targets": [f"{at}:{port}"],
                "labels": {"flow": flow, "process": process, "agent": self.name},
            }
            for flow, process, port in places
        ]


def serve_agent(address: str, standing: AgentStatus) -> AbstractContextManager[object]:
    """Serve the metrics of an agent at `HOST:PORT`, if it is to. Raises FlowError."""
    if not address:
        return nullcontext()
    from driftline.deploy.runtime.metrics.serving import serving

    endpoint = Endpoint.of(address)
    return serving(endpoint, AGENT, standing.samples, standing, targets=standing.targets)


def of_processes(address: str) -> str:
    """Where the processes at an agent serve whose address this is; "": nowhere."""
    if not address:
        return ""
    host, _, _ = address.rpartition(":")
    return f"{host}:0"
