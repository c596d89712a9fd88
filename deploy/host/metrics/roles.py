"""The metrics of each role: what it counts, how it is, and where it serves that.

Takes the address of the command, "" if the run serves no metrics, and the role with what drives it.
Gives a context manager. What needs the libraries of Prometheus is imported only if it is used.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from driftline.deploy.host.heartbeat import Heartbeat
from driftline.deploy.host.metrics.endpoint import Endpoint
from driftline.deploy.host.metrics.health import Health, Ready, master_ready, node_ready
from driftline.deploy.host.metrics.samples import OfMaster, OfNode, OfProcess, Samples
from driftline.deploy.host.runtime import Runtime
from driftline.deploy.node.node import Node
from driftline.deploy.parties.master import Master

COMMAND = "run"
"""The name of the command's own process, as in log lines."""

MASTER_CHILD, NODE_CHILD = 1, 2
"""The number of the master, and of node-0, among the processes of a run."""

Context = AbstractContextManager[object]


def serve_command(
    address: str, flow: str, runtime: Runtime, ready: Ready, heartbeat: Heartbeat, samples: Samples
) -> Context:
    """The metrics of the command's own process."""
    if not address:
        return nullcontext()
    all_samples = OfProcess(COMMAND, runtime), samples
    return _serving(
        Endpoint.of(address), COMMAND, flow, all_samples, Health(runtime, ready, heartbeat)
    )


def serve_master(address: str, master: Master, runtime: Runtime) -> Context:
    """The metrics of the master."""
    if not address:
        return nullcontext()
    endpoint = Endpoint.of(address).of_child(MASTER_CHILD)
    samples = OfProcess(master.name, runtime), OfMaster(master)
    health = Health(runtime, master_ready(master))
    return _serving(endpoint, master.name, master.plan.flow.name, samples, health)


def serve_node(address: str, node: Node, runtime: Runtime, heartbeat: Heartbeat) -> Context:
    """The metrics of a node."""
    if not address:
        return nullcontext()
    endpoint = Endpoint.of(address).of_child(NODE_CHILD + node.index)
    samples = OfProcess(node.name, runtime), OfNode(node)
    health = Health(runtime, node_ready(node), heartbeat)
    return _serving(endpoint, node.name, node.plan.flow.name, samples, health)


def preload() -> None:
    """Load the libraries now, as there is no time for it later."""
    import driftline.deploy.host.metrics.serving  # noqa: F401


def _serving(
    endpoint: Endpoint, name: str, flow: str, samples: tuple[Samples, ...], health: Health
) -> Context:
    from driftline.deploy.host.metrics.serving import Serving

    return Serving(endpoint, name, flow, samples, health)
