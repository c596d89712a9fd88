"""Metrics of an agent, and the addresses at which its processes serve theirs.

The agent's loop updates an `AgentStatus`. From it the endpoint reads samples, the agent's health,
and scrape targets for Prometheus. The agent serves its metrics at the configured port, and each of
its processes at a free port of the same host.
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
"""If an agent's loop has begun no turn for this many seconds, the agent counts as hanging.

The limit is high because a turn may wait for ZooKeeper.
"""


class AgentStatus(Struct):
    """Status of an agent. Its loop sets the fields; other threads read them."""

    name: str
    roles: tuple[AgentRole, ...]
    slots: int
    turned_at: float = field(default_factory=monotonic)
    """When the agent's loop last began a turn (seconds, monotonic)."""
    unreachable_reason: str = "it has not seen the cluster yet"
    """Why the agent could not read the tree; "" if it could."""
    runners: dict[str, FlowRunner] = field(default_factory=dict)
    """Flow -> the runner of its processes on this host."""
    problems: dict[str, str] = field(default_factory=dict)
    """Flow -> why it cannot run on this host."""

    def why_not_healthy(self, now: float) -> str:
        """Return why the agent is not healthy; "" if it is."""
        hung_s = now - self.turned_at
        return f"the agent's loop has not turned for {hung_s:.0f} s" * (hung_s > HANGS_AFTER_S)

    def why_not_ready(self) -> str:
        """Return why the agent is not ready; "" if it is."""
        return self.unreachable_reason

    def samples(self) -> Iterator[tuple[str, Sample]]:
        """Yield (flow, sample) pairs; flow "": the sample is about the agent itself."""
        yield "", ("driftline_process_info", (AGENT, our_version()), 1)
        yield "", ("driftline_agent_info", (self.name, ",".join(self.roles)), 1)
        yield "", ("driftline_agent_reaches_cluster", (), not self.unreachable_reason)
        if set(self.roles) != {AgentRole.MASTER}:  # a master takes no slot
            yield "", ("driftline_agent_slots", (), self.slots)
        runners, problems = self.runners.copy(), self.problems.copy()
        for flow in {**runners, **problems}:
            yield flow, ("driftline_agent_problem", (), flow in problems)
        for flow, runner in runners.items():
            cluster = runner.cluster
            running = cluster.running if cluster is not None else ()
            yield flow, ("driftline_agent_processes", (), len(running))
            if cluster is not None:
                yield from ((flow, sample) for sample in restarts(cluster))

    def targets(self, host: str, port: int) -> list[dict[str, object]]:
        """Return the scrape targets of the agent and its processes.

        `host`, `port`: the address at which the agent serves its metrics.
        """
        endpoints = [("", AGENT, port)]
        for flow, runner in self.runners.copy().items():
            for name in runner.cluster.pids if runner.cluster is not None else ():
                role, _, number = name.partition("-")
                own_port = read_port_file(port_file_path(runner.sockets, role, int(number or 0)))
                endpoints += [(flow, name, own_port)] if own_port else []
        url_host = f"[{host}]" if ":" in host else host
        return [
            {
                "targets": [f"{url_host}:{port}"],
                "labels": {"flow": flow, "process": process, "agent": self.name},
            }
            for flow, process, port in endpoints
        ]


def serve_agent(address: str, status: AgentStatus) -> AbstractContextManager[object]:
    """Return a context in which the metrics of an agent are served. Raises FlowError.

    `address`: `HOST:PORT`; "": serve no metrics.
    """
    if not address:
        return nullcontext()
    from driftline.deploy.runtime.metrics.serving import serving

    endpoint = Endpoint.parse(address)
    return serving(endpoint, AGENT, status.samples, status, targets=status.targets)


def process_metrics_address(address: str) -> str:
    """Return the metrics address of an agent's processes: the agent's host, and any free port.

    `address`: the agent's; "": no metrics, and the result is "", too.
    """
    if not address:
        return ""
    host, _, _ = address.rpartition(":")
    return f"{host}:0"
