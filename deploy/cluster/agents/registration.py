"""Registration: shows an agent to the others of its cluster, for as long as it lives.

Its record is held in the tree. By what it is held is noted in the state directory before: so the
next agent on that directory, after a kill, does not wait for the end of a session (`Tree.succeed`).
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from driftline.deploy.cluster.flows.records import AgentRecord, Kind
from driftline.deploy.cluster.flows.submissions import agents
from driftline.deploy.cluster.tree.tree import AGENTS, Tree
from driftline.deploy.host.sockets.transport import Network
from driftline.engine.errors import InUse, Unavailable
from driftline.engine.wire.addresses import host_of, parse
from driftline.engine.wire.senders import AGENT

ANY_PORT = 1
"""Stands for the ports of all processes: each has a free one of its own."""

HOLDER = "holder"
"""The file, in the state directory, with which the next agent shows that it is this one's heir."""


def record_of(
    name: str, kind: Kind, slots: int, network: Network, state: Path, sockets: Path
) -> AgentRecord:
    """What the others are told of an agent of this process, as long as nothing runs on it.

    Raises NotPermitted or Unavailable if processes could not listen there.
    """
    address = public = ""
    if network.scheme == "tcp":
        transport, endpoint = network.transport(sockets), network.endpoint(ANY_PORT)
        transport.check_listener(AGENT, endpoint)
        told = parse(transport.told(endpoint))
        address, public = host_of(told.endpoint), told.public
    return AgentRecord(
        name,
        kind,
        socket.gethostname(),
        slots,
        os.getpid(),
        address=address,
        public=public,
        keyed=bool(network.keys),
        state=str(state),
    )


class Registration:
    """The place of an agent in the tree. `record`: what does not change of it."""

    def __init__(self, tree: Tree, record: AgentRecord) -> None:
        self._tree = tree
        self._record = record
        self._path = f"{AGENTS}/{record.name}"
        self._noted = ""
        """The holder that the next agent will find."""
        self._shown: AgentRecord | None = None

    def show(
        self,
        trouble: tuple[tuple[str, str], ...] = (),
        members: tuple[tuple[str, str, str], ...] = (),
    ) -> None:
        """Show the agent, if it is new or something has changed. Raises InUse, Unavailable."""
        self._note_holder()
        record = replace(self._record, trouble=trouble, members=members)
        if record != self._shown:
            self._tree.hold(self._path, record.encode())
            self._shown = record

    def end(self) -> None:
        """Show it no more."""
        with suppress(Unavailable):  # it is let go of with the session
            self._tree.let_go(self._path)

    def taken(self) -> InUse:
        """The error that another agent has this name. Raises Unavailable."""
        name, where = self._record.name, self._tree.where
        which = [
            f", for {each.kind} processes (host {each.host}, pid {each.pid})"
            for each in agents(self._tree)
            if each.name == name
        ]
        return InUse(
            f"{where} has an agent {name!r} already{''.join(which)}: give this one another --name"
        )

    def _note_holder(self) -> None:
        """Note by what this agent holds its place, before it does."""
        holder = self._tree.holder()
        if holder != self._noted:
            state = Path(self._record.state)
            with suppress(OSError):  # then the next one waits until the session is over
                (state / HOLDER).write_text(f"{_place(state)} {holder}")
            self._noted = holder


def holder_before(state: Path) -> str:
    """By what the agent before, which has ended, held its place in the tree, if it was killed.

    `state`: its state directory.
    """
    try:
        place, _, holder = (state / HOLDER).read_text().rpartition(" ")
    except OSError:
        return ""
    return holder if place == _place(state) else ""


def _place(state: Path) -> str:
    """What tells a state directory from a copy of it, whose agent may live."""
    return f"{socket.gethostname()} {state.stat().st_ino}"
