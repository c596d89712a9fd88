"""What the processes of a flow on one host are told: of the submission, and of the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from driftline.deploy.cluster.flows.records import Submission
from driftline.deploy.cluster.flows.wheels import fetch
from driftline.deploy.cluster.tree.folder import Folder
from driftline.deploy.cluster.tree.tree import FLOWS, Tree
from driftline.deploy.host.config import SESSION_S, ProcessConfig
from driftline.deploy.host.sockets.transport import LOCAL, Network
from driftline.engine.keygroups import Layout
from driftline.engine.wire.senders import CONSUMER


@dataclass(frozen=True, slots=True)
class Host:
    """What an agent gives the flows on its host."""

    agent: str
    state: Path
    sockets: Path
    network: Network = LOCAL
    session_s: float = SESSION_S
    log_level: int = 0
    metrics: str = ""
    """Where its processes serve metrics, each at a free port: `HOST:0`; "": nowhere."""


def process_config(
    given: Submission, layout: Layout, host: Host, tree: Tree, sockets: Path
) -> ProcessConfig:
    """What the processes of a flow are told. `sockets`: the folder of theirs; it is made.

    Raises Unavailable, StateMismatch if its wheel cannot be fetched.
    """
    sockets.mkdir(mode=0o700, exist_ok=True)
    paths, network = given.paths, host.network
    if given.wheel:
        paths += (str(fetch(tree, given.name, given.wheel, host.state / "wheels")),)
    if given.consumer:
        network = replace(network, known=(*network.known, (CONSUMER, given.consumer)))
    return ProcessConfig(
        flow=given.flow,
        nodes=given.count,
        layout=layout,
        policy=given.policy,
        ordering=given.ordering,
        checkpoint_s=given.checkpoint_s,
        state=str(host.state / FLOWS / given.name),
        sockets=str(sockets),
        identity=given.identity,
        code=given.code,
        run=given.run,
        dead_letters=given.dead_letters,
        lineage=given.lineage,
        session=given.session,
        output=given.output,
        journal=bool(given.consumer),
        limits=given.limits,
        paths=paths,
        log_level=host.log_level,
        metrics=host.metrics,
        submitted_as=given.name,
        network=network,
        zookeeper=f"{tree.zookeeper}/{FLOWS}/{given.name}" if tree.zookeeper else "",
        session_s=host.session_s,
        registry=str(tree.registry_file(given.name)) if isinstance(tree, Folder) else "",
        reading=given.reading,
        beginning=given.beginning,
    )
