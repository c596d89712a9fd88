"""Metrics of an agent, and the addresses at which its processes serve theirs.

The agent's loop sets an `AgentStatus`, from which the endpoint reads samples, the agent's health,
and scrape targets for Prometheus. The agent serves at the configured port, and each of its
processes at a free port of the same host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from time import monotonic

from msgspec import Struct, field

from driftline.deploy.cluster.flow_runner import FlowRunner
from driftline.deploy.cluster.records import AgentRole
from driftline.deploy.local.metrics import restarts
from driftline.deploy.runtime.metrics.endpoint import Endpoint, port_file_path, read_port_file
from driftline.deploy.runtime.metrics.roles import our_version
from driftline.engine.meters import Sample

AGENT = "agent"
"""Name of an agent's own process, as in its log lines."""

HANGS_AFTER_S = 60.0
"""Seconds without a turn of its loop after which an agent counts as hanging.

A turn may wait for ZooKeeper.
"""


class AgentStatus(Struct):
    """Status of an agent. Its loop sets the fields; other threads read them."""

    name: str
    roles: tuple[AgentRole, ...]
    slots: int
    turned_at: float = field(default_factory=monotonic)
    """When its loop last turned (seconds, monotonic)."""
    unreachable_reason: str = "it has not seen the cluster yet"
    """Why it could not read the tree; "" if it could."""
    runners: dict[str, FlowRunner] = field(default_factory=dict)
    """Flow -> its processes here."""
    troubles: dict[str, str] = field(default_factory=dict)
    """Flow -> why it cannot run here."""

    def why_not_healthy(self, now: float) -> str:
        """Return why the agent is not healthy; "" if it is."""
        silent = now - self.turned_at
        return f"the agent's loop has not turned for {silent:.0f} s" * (silent > HANGS_AFTER_S)

    def why_not_ready(self) -> str:
        """Return why the agent is not ready; "" if it is."""
        return self.unreachable_reason

    def samples(self) -> Iterator[tuple[str, Sample]]:
        """Yield the agent's samples as (flow, sample); "" for no flow."""
        yield "", ("driftline_process_info", (AGENT, our_version()), 1)
        yield "", ("driftline_agent_info", (self.name, ",".join(self.roles)), 1)
        yield "", ("driftline_agent_reaches_cluster", (), not self.unreachable_reason)
        if set(self.roles) != {AgentRole.MASTER}:  # a master takes no slot
            yield "", ("driftline_agent_slots", (), self.slots)
        hosted, troubles = self.runners.copy(), self.troubles.copy()
        for flow in {**hosted, **troubles}:
            yield flow, ("driftline_agent_trouble", (), flow in troubles)
        for flow, hosting in hosted.items():
            cluster = hosting.cluster
            running = cluster.running if cluster is not None else ()
            yield flow, ("driftline_agent_processes", (), len(running))
            if cluster is not None:
                yield from ((flow, sample) for sample in restarts(cluster))

    def targets(self, host: str, port: int) -> list[dict[str, object]]:
        """Return the scrape targets of the agent and its processes; `host`: its address."""
        places = [("", AGENT, port)]
        for flow, hosting in self.runners.copy().items():
            for name in hosting.cluster.pids if hosting.cluster is not None else ():
                role, _, number = name.partition("-")
                noted = read_port_file(port_file_path(hosting.sockets, role, int(number or 0)))
                places += [(flow, name, noted)] if noted else []
        at = f"[{host}]" if ":" in host else host
        return [
            {
                "targets": [f"{at}:{port}"],
                "labels": {"flow": flow, "process": process, "agent": self.name},
            }
            for flow, process, port in places
        ]


def serve_agent(address: str, status: AgentStatus) -> AbstractContextManager[object]:
    """Serve the metrics of an agent at `HOST:PORT`; "": not at all. Raises FlowError."""
    if not address:
        return nullcontext()
    from driftline.deploy.runtime.metrics.serving import serving

    endpoint = Endpoint.parse(address)
    return serving(endpoint, AGENT, status.samples, status, targets=status.targets)


def process_metrics_address(address: str) -> str:
    """Return the metrics address of an agent's processes, given the agent's; "": none."""
    if not address:
        return ""
    host, _, _ = address.rpartition(":")
    return f"{host}:0"
