"""Start of a service's session on a cluster: resume or submit the flow of its state directory.

A running flow is resumed: its front ran here and was killed. A flow that has ended or never started
is submitted. The state directory records its lineage before anything is written elsewhere. So a
service recognises its flow even if the first start was interrupted, and never resumes the flow of
a lost or different state directory.
"""

from __future__ import annotations

import json
import secrets
import socket
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster.records import Submission
from driftline.deploy.cluster.submissions import (
    CANCELLED,
    fail,
    find_submission,
    has_ended,
    registry_of,
)
from driftline.deploy.cluster.submitting import ServiceSpec, SubmitRequest, submit
from driftline.deploy.cluster.zookeeper_tree import FLOWS, ZooKeeperTree
from driftline.deploy.runtime.config import Reading
from driftline.deploy.runtime.sockets.keys import own_key
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.durable import make_directory, replace_file, translate_os_errors
from driftline.engine.errors import NotPermitted, StateMismatch, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.flow.code import code_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from driftline.engine.texts import counted
from driftline.engine.wire.kinds import CONSUMER
from driftline.serve.running.deployment import SERVICE_FILE, Serving
from driftline.serve.running.directories import POLICY, REMOVE_ADVICE, check_directories

PATH_BYTES_MAX = 100
"""Limit of a socket's path; that of the kernel is 107."""


@dataclass(frozen=True, slots=True)
class Note:
    """The record in a state directory of the service it belongs to."""

    name: str
    """The name of the service, of its flow and of the agent of its front."""
    lineage: str
    port: int = 0
    """The port of the journal; kept, since nodes expect the next journal there."""
    begun: bool = False
    """Whether the flow was submitted."""

    @staticmethod
    def read(state: Path, name: str) -> Note:
        """Return the note of a directory, or a new one, which is not written yet.

        Raises StateMismatch if the directory is of another service, Unavailable.
        """
        with translate_os_errors("state directory", state):
            if (state / "registry").exists():
                raise StateMismatch(
                    f"{state} is of a service on this machine alone: give another --state, or go "
                    "on with it without --zookeeper"
                )
            if not (state / SERVICE_FILE).exists():
                return Note(name, secrets.token_hex(8))
            try:
                note = Note(**json.loads((state / SERVICE_FILE).read_text()))
            except (ValueError, TypeError) as error:
                raise StateMismatch(
                    f"{state / SERVICE_FILE} is damaged: {error}. Restore it from a copy"
                ) from None
        if note.name != name:
            raise StateMismatch(
                f"{state} is of the service {note.name!r}: give --name {note.name}, or another "
                "--state"
            )
        return note

    def write(self, state: Path) -> None:
        """Write the note durably. Raises Unavailable."""
        with translate_os_errors("state directory", state):
            make_directory(state)
            replace_file(state / SERVICE_FILE, json.dumps(asdict(self)).encode())


def journal_network(
    network: TransportConfig, key: Path | None, sinks: tuple[str, ...]
) -> TransportConfig:
    """Return the network of the journal's process.

    `network`: of the other processes here; `key`: the file of the journal's key, with a right to
    these sinks. Raises NotPermitted, Unavailable.
    """
    if network.scheme != "tcp" or not network.keys:
        return network
    made = "`driftline keys DIR --consumer journal=*` makes one in the set of --keys"
    if key is None:
        raise NotPermitted(
            f"the journal takes the outputs of all nodes, so it needs a key of a consumer: {made}; "
            "then give --journal-key DIR/journal.key, and `authorised` to all hosts"
        )
    own = own_key(key)
    if not (own.rights.may_send_as(CONSUMER) and own.rights.may_take(sinks)):
        raise NotPermitted(f"the key {own.name} may not take {', '.join(sinks)}: {made}")
    found = replace(network, keys=str(key))
    if found.authorised().find_key(own.public) is None:
        raise NotPermitted(f"the key {own.name} is not in {key.with_name('authorised')}: {made}")
    return found


@dataclass(frozen=True, slots=True)
class SessionStart:
    """Start of a session.

    `name`: of the service; `journal`: the network of its journal; `wheel`: the wheel of the flow,
    if any.
    """

    tree: ZooKeeperTree
    name: str
    journal: TransportConfig
    wheel: Path | None

    def begin(self, serving: Serving, flow: Flow, sockets: Path) -> Submission:
        """Resume or submit the flow. Precondition: the caller holds the name and the directory.

        Raises StateMismatch if the flow of this name belongs to another service, or if the state
        directory does not fit it; Unavailable.
        """
        tree, name, state = self.tree, self.name, serving.state
        note = Note.read(state, name)
        before = None if (found := find_submission(tree, name)) is None else found[0]
        if note.begun and before is None:
            raise StateMismatch(
                f"{tree.where} has lost flow {name!r} of this service: {REMOVE_ADVICE}"
            )
        registered = None if before is None else registry_of(tree, name)
        runs = before is not None and registered is not None and not has_ended(registered, before)
        if self.journal.scheme == "tcp":
            note = replace(note, port=_free_port(self.journal, note.port))
        note.write(state)
        service = ServiceSpec(name, self._consumer(note.port, state), note.lineage)
        if before is not None:
            service.check_same(tree, name, before.lineage, before.front_agents)
        if registered is not None:
            anew = (
                f"start over: `driftline remove {name}` says what to remove; then {REMOVE_ADVICE}"
            )
            where = f"{tree.where}, {FLOWS}/{name}"
            of_flow = state / FLOWS / name
            check_directories(state, where, registered, POLICY, (), anew, of_flow)
        if before is not None and runs:
            if _can_resume(before, flow, service):
                nodes = len(before.current_layout(registered))
                text, fields = (
                    "",
                    event_fields("service-resumed", flow=name, run=before.run, nodes=nodes),
                )
                if serving.nodes not in (None, nodes):
                    text = f". It keeps its {counted(nodes, 'node')}: see `driftline rescale`"
                log.info("flow %s runs: this is its front again%s", name, text, extra=fields)
                replace(note, begun=True).write(state)
                return before
            fail(tree, before, CANCELLED, "its service starts over, with other code or address")
        made = submit(tree, flow, self._order(serving, service, before, registered))
        replace(note, begun=True).write(state)
        places = ", ".join(map(made.agent_of, made.current_layout(registry_of(tree, name))))
        fields = event_fields("service-submitted", flow=name, run=made.run, nodes=places)
        log.info("flow %s is submitted: nodes at %s", name, places, extra=fields)
        return made

    def _order(
        self,
        serving: Serving,
        service: ServiceSpec,
        before: Submission | None,
        registered: ClusterState | None,
    ) -> SubmitRequest:
        now = 1 if before is None else len(before.current_layout(registered))
        return SubmitRequest(
            self.name,
            serving.flow,
            Reading((service.input,)),
            "",
            serving.nodes or now,
            get_policy(POLICY, "speculative"),
            serving.checkpoint_s,
            dead_letters=True,
            accept_changed_code=serving.accept_changed_code,
            wheel=self.wheel,
            service=service,
        )

    def _consumer(self, port: int, state: Path) -> str:
        """Return the journal's address for nodes, the same at every start. Raises Unavailable."""
        if self.journal.scheme == "tcp":
            return self.journal.transport().resolve_advertised(self.journal.endpoint(port))
        path = state / "journal.socket"
        if len(bytes(path)) > PATH_BYTES_MAX:
            raise Unavailable(
                f"{path} is too long for a socket: give a shorter --state, or --bind 127.0.0.1"
            )
        return f"ipc://{path}"


def _can_resume(before: Submission, flow: Flow, service: ServiceSpec) -> bool:
    """Return whether a run has the same flow, code and journal address as this service."""
    code = code_of(flow)
    comparable = before.code.startswith(f"{code.python} ")
    same = before.identity.partition("|")[0] == make_plan(flow).identity()
    same &= not comparable or before.code == code.text
    return same and before.consumer == service.consumer


def _free_port(network: TransportConfig, kept: int) -> int:
    """Return the kept port if it is free, or another free one. Raises Unavailable."""
    host, _, _ = network.endpoint(0).removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in dict.fromkeys((kept, 0)):
        try:
            with socket.create_server((host, port), family=family) as found:
                return int(found.getsockname()[1])
        except OSError as error:
            reason = error.strerror
    raise Unavailable(f"the journal cannot listen at {host}: {reason}")
