"""Asking the processes of a flow how they are, for those who look at a cluster.

The master knows where all others are. Where the nodes and fronts of its host are each agent has
shown, too: so they can be asked while there is no master.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from time import monotonic

from driftline.deploy.cluster.flows.records import AgentRecord, Submission
from driftline.deploy.cluster.tree.tree import Tree
from driftline.deploy.host.loop.runtime import Runtime
from driftline.deploy.host.sockets.transport import Network
from driftline.deploy.parties.watch import Watch
from driftline.engine.keygroups import Layout, names_of
from driftline.engine.wire.messages import Report
from driftline.engine.wire.senders import FRONT, MASTER, NODE, WATCH

ANSWER_S = 2.0
"""How long masters, nodes and fronts may take to answer."""

ASK_AGAIN_S = 0.5
"""An answer may be lost, as it may go to another command that asks at the same moment."""


def ask(
    tree: Tree,
    submission: Submission,
    layout: Layout,
    alive: Sequence[AgentRecord],
    sockets: Path,
    network: Network,
    answer_s: float = ANSWER_S,
) -> Mapping[str, Report]:
    """What the master, the nodes and the fronts of a flow report within a while.

    `alive`: the agents that live; `sockets`: a folder for sockets of this command. Raises
    Unavailable.
    """
    with ExitStack() as stack:
        masters = tree.masters(submission.name, lambda: None)
        stack.callback(masters.close)
        _, address = masters.leader()
        known = _shown(submission, layout, alive)
        if address:
            known[MASTER] = address
        if not known:
            return {}
        runtime = Runtime(transport=network.transport(sockets))
        stack.callback(runtime.close, linger_ms=0)
        watch = Watch(inf, f"{WATCH}-status", (MASTER, NODE, FRONT))
        at = network.inbox(f"{WATCH}-{submission.name}", str(sockets))
        watch.address = runtime.add(watch, at)
        watch.addresses.update(known)
        give_up_at, asked, again_at = monotonic() + answer_s, 0, 0.0
        while (now := monotonic()) < give_up_at:
            if len(watch.addresses) > asked or now >= again_at:
                asked = len(watch.addresses)  # first those that are shown, then those it names
                again_at = now + ASK_AGAIN_S
                watch.ask()
            runtime.step(wait_s=0.02)
            if watch.answered and len(watch.addresses) == asked:
                break
        return watch.reports


def keyless(network: Network, alive: Sequence[AgentRecord]) -> str:
    """Why processes of a cluster would not answer who asks by this network; "" if they would.

    Raises NotPermitted, Unavailable for keys that cannot be used.
    """
    with_keys = [agent.name for agent in alive if agent.public]
    if not with_keys:
        return ""
    if not (network.scheme == "tcp" and network.keys):
        return "this cluster has keys: give --bind and --keys"
    if strangers(network, alive) == with_keys:
        return "these --keys are of another set than those of this cluster"
    return ""


def strangers(network: Network, alive: Sequence[AgentRecord]) -> list[str]:
    """The agents with keys that are none of the set of this network, which has keys.

    Raises NotPermitted, Unavailable for keys that cannot be used.
    """
    known = network.authorised()
    return [agent.name for agent in alive if agent.public and known.who(agent.public) is None]


def _shown(submission: Submission, layout: Layout, alive: Sequence[AgentRecord]) -> dict[str, str]:
    """Where the nodes and fronts of a flow are, as their agents have shown it."""
    places = {
        name: submission.place_of(n) for n, name in zip(layout, names_of(layout), strict=True)
    }
    places |= {f"{FRONT}-{number}": agent for number, agent in enumerate(submission.fronts)}
    return {
        process: address
        for agent in alive
        for flow, process, address in agent.members
        if flow == submission.name and places.get(process) == agent.name
    }
