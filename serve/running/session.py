"""Start of a service's session on a cluster: resume or submit the flow of its state directory.

If the flow still runs, only the previous process of the service has died, and with it the flow's
front: the service resumes the flow. It submits a flow that has ended, has never started, or has
changed. The service writes its lineage to the state directory before it submits the flow. So it
recognises its flow even if the first start was interrupted, and never resumes the flow of a lost or
different state directory.
"""

from __future__ import annotations

import json
import secrets
import socket
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

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
from driftline.serve.running.deployment import SERVICE_FILE, ServiceOptions
from driftline.serve.running.directories import POLICY, REMOVE_ADVICE, check_directories

PATH_BYTES_MAX = 100
"""Limit of a Unix socket's path in bytes; the limit of the kernel is 107."""


class ServiceRecord(Struct, frozen=True):
    """Record of the service that owns a state directory, in a file of the directory."""

    name: str
    """The name of the service, of its flow, and of the agent that stands for its front."""
    lineage: str
    """The lineage of the state directory (`engine.storage.ownership`)."""
    port: int = 0
    """The port of the journal, 0 if none was chosen. Each start chooses it again if it is free, as
    nodes reconnect to it."""
    begun: bool = False
    """Whether the flow was submitted."""

    @staticmethod
    def read(state: Path, name: str) -> ServiceRecord:
        """Return the record of a directory, or a new one, which is not written yet.

        Raises StateMismatch if the directory belongs to another service or its record is damaged;
        Unavailable.
        """
        with translate_os_errors("state directory", state):
            if (state / "registry").exists():
                raise StateMismatch(
                    f"{state} belongs to a service that runs without a cluster: give another "
                    "--state, or omit --zookeeper"
                )
            if not (state / SERVICE_FILE).exists():
                return ServiceRecord(name, secrets.token_hex(8))
            try:
                record = ServiceRecord(**json.loads((state / SERVICE_FILE).read_text()))
            except (ValueError, TypeError) as error:
                raise StateMismatch(
                    f"{state / SERVICE_FILE} is damaged: {error}. Restore it from a copy"
                ) from None
        if record.name != name:
            raise StateMismatch(
                f"{state} belongs to the service {record.name!r}: give --name {record.name}, or "
                "another --state"
            )
        return record

    def write(self, state: Path) -> None:
        """Write the record durably. Raises Unavailable."""
        with translate_os_errors("state directory", state):
            make_directory(state)
            replace_file(state / SERVICE_FILE, json.dumps(asdict(self)).encode())


def journal_network(
    network: TransportConfig, key: Path | None, sinks: tuple[str, ...]
) -> TransportConfig:
    """Return the network of the journal's process.

    `network`: the network of the other processes on this host; `key`: the file of the journal's
    key, which must permit consuming all `sinks`; needed only if `network` has keys. Raises
    NotPermitted, Unavailable.
    """
    if network.scheme != "tcp" or not network.keys:
        return network
    key_advice = (
        "`driftline keys DIR --consumer journal=*` makes one (DIR: the directory of --keys)"
    )
    if key is None:
        raise NotPermitted(
            "the journal takes the outputs of all nodes, so it needs a consumer's key: "
            f"{key_advice}; then pass --journal-key DIR/journal.key, and copy "
            "DIR/authorised to all hosts"
        )
    own = own_key(key)
    if not (own.rights.may_send_as(CONSUMER) and own.rights.may_take(sinks)):
        raise NotPermitted(f"the key {own.name} may not take {', '.join(sinks)}: {key_advice}")
    journal = replace(network, keys=str(key))
    if journal.authorised().find_key(own.public) is None:
        raise NotPermitted(
            f"the key {own.name} is not in {key.with_name('authorised')}: {key_advice}"
        )
    return journal


class SessionStart(Struct, frozen=True):
    """Start of a service's session on a cluster.

    `name`: the name of the service; `journal_network`: the network of its journal; `wheel`: the
    wheel of the flow, if any.
    """

    tree: ZooKeeperTree
    name: str
    journal_network: TransportConfig
    wheel: Path | None

    def begin(self, options: ServiceOptions, flow: Flow, sockets: Path) -> Submission:
        """Resume or submit the flow. Return its submission.

        Precondition: the caller has registered the name and locked the directory. Raises
        StateMismatch if the flow of this name belongs to another service, or if the state directory
        does not fit the flow; Unavailable.
        """
        tree, name, state = self.tree, self.name, options.state
        record = ServiceRecord.read(state, name)
        previous = None if (found := find_submission(tree, name)) is None else found[0]
        if record.begun and previous is None:
            raise StateMismatch(
                f"flow {name!r} of this service is no longer in {tree.where}: to start over, "
                f"remove {state}, which deletes all data of the service"
            )
        registry_state = None if previous is None else registry_of(tree, name)
        is_running = (
            previous is not None
            and registry_state is not None
            and not has_ended(registry_state, previous)
        )
        if self.journal_network.scheme == "tcp":
            record = replace(record, port=_free_port(self.journal_network, record.port))
        record.write(state)
        service = ServiceSpec(name, self._journal_address(record.port, state), record.lineage)
        if previous is not None:
            service.check_same(tree, name, previous.lineage, previous.front_agents)
        if registry_state is not None:
            start_over_advice = (
                f"start over: `driftline remove {name}` says what to remove; then {REMOVE_ADVICE}"
            )
            where = f"{tree.where}, {FLOWS}/{name}"
            flow_directory = state / FLOWS / name
            check_directories(
                state, where, registry_state, POLICY, (), start_over_advice, flow_directory
            )
        if previous is not None and is_running:
            if _can_resume(previous, flow, service):
                nodes = len(previous.current_layout(registry_state))
                run = previous.run
                fields = event_fields("service-resumed", flow=name, run=run, nodes=nodes)
                text = "flow %s is still running: its front has restarted here"
                if options.nodes not in (None, nodes):
                    text += f". It keeps its {counted(nodes, 'node')}: see `driftline rescale`"
                log.info(text, name, extra=fields)
                replace(record, begun=True).write(state)
                return previous
            text = "its service starts a new run: the flow or the journal's address has changed"
            fail(tree, previous, CANCELLED, text)
        submission = submit(tree, flow, self._submit_request(options, service))
        replace(record, begun=True).write(state)
        agents = ", ".join(
            map(submission.agent_of, submission.current_layout(registry_of(tree, name)))
        )
        fields = event_fields("service-submitted", flow=name, run=submission.run, nodes=agents)
        log.info("flow %s is submitted: nodes at agents %s", name, agents, extra=fields)
        return submission

    def _submit_request(self, options: ServiceOptions, service: ServiceSpec) -> SubmitRequest:
        return SubmitRequest(
            self.name,
            options.flow,
            Reading((service.input,)),
            output="",
            nodes=options.nodes,
            policy=get_policy(POLICY, "speculative"),
            snapshot_interval_s=options.snapshot_interval_s,
            dead_letters=True,
            accept_changed_code=options.accept_changed_code,
            wheel=self.wheel,
            service=service,
        )

    def _journal_address(self, port: int, state: Path) -> str:
        """Return the address at which nodes reach the journal; it changes only with the port.

        Raises Unavailable.
        """
        if self.journal_network.scheme == "tcp":
            return self.journal_network.transport().resolve_advertised(
                self.journal_network.endpoint(port)
            )
        path = state / "journal.socket"
        if len(bytes(path)) > PATH_BYTES_MAX:
            raise Unavailable(
                f"{path} is too long for a socket: give a shorter --state, or --bind 127.0.0.1"
            )
        return f"ipc://{path}"


def _can_resume(previous: Submission, flow: Flow, service: ServiceSpec) -> bool:
    """Return whether a run has the same flow, code and journal address as this service.

    Code is compared only if both have the same Python version.
    """
    code = code_of(flow)
    has_same_python = previous.code.startswith(f"{code.python} ")
    is_same_flow = previous.identity.partition("|")[0] == make_plan(flow).identity()
    is_same_code = not has_same_python or previous.code == code.text
    return is_same_flow and is_same_code and previous.consumer == service.consumer


def _free_port(network: TransportConfig, preferred: int) -> int:
    """Return `preferred` if that port is free, or another free port. Raises Unavailable."""
    host, _, _ = network.endpoint(0).removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in dict.fromkeys((preferred, 0)):
        try:
            with socket.create_server((host, port), family=family) as listener:
                return int(listener.getsockname()[1])
        except OSError as error:
            reason = error.strerror
    raise Unavailable(f"the journal cannot listen at {host}: {reason}")
