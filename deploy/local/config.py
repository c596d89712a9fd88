"""The configuration of a run on this machine, and the rules for who may send it records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftline.connectors.inputs import Input
from driftline.connectors.outputs import OutputPlace
from driftline.deploy.runtime.config import LIMITS, Limits
from driftline.deploy.runtime.sockets.intake_socket import Keys
from driftline.deploy.runtime.sockets.keys import Authorised, own_key
from driftline.deploy.runtime.sockets.listening import fault_of, is_local
from driftline.engine.errors import FlowError
from driftline.engine.policy import Policy
from driftline.engine.snapshots.savepoint import Savepoint
from driftline.engine.snapshots.savepoint_mapping import NO_CHOICE, Choice
from driftline.engine.sources import RetainedSource


@dataclass(frozen=True, slots=True)
class SenderRules:
    """Rules for senders to the addresses among the inputs of a run."""

    let_anyone_send: bool = False
    """Allow addresses that other machines can reach, even without keys."""
    keys: Path | None = None
    """The key file of this host, or its directory; None: without keys."""
    sources: tuple[str, ...] = ()
    """The names of the flow's sources."""

    def keys_of(self, number: int, address: str) -> Keys | None:
        """Return the keys of the intake at an address. Raise NotPermitted or Unavailable."""
        if self.keys is None or not address.startswith("tcp://"):
            return None
        directory = self.keys if self.keys.is_dir() else self.keys.parent
        return Keys(own_key(self.keys), Authorised(directory), self.sources[number])


LOCAL_ONLY = SenderRules()
"""Only this machine, without keys."""


def check_addresses(inputs: Iterable[object], reach: SenderRules = LOCAL_ONLY) -> None:
    """Check addresses: valid, and with keys or `let_anyone_send` if others can reach them.

    Raises FlowError; with keys also NotPermitted and Unavailable.
    """
    for number, given in enumerate(inputs):
        check_input(number, given, reach)


def check_input(number: int, given: object, reach: SenderRules = LOCAL_ONLY) -> None:
    """Check one input as `check_addresses` does."""
    if isinstance(given, str):
        check_syntax(given)
        keyed = reach.keys_of(number, given) is not None
        check_exposure(given, let_anyone_send=keyed or reach.let_anyone_send)


def check_syntax(address: str) -> None:
    """Raise FlowError unless producers can connect to this address."""
    if fault := fault_of(address):
        raise FlowError(f"cannot listen for producers on {address}: {fault}")


def check_exposure(address: str, *, let_anyone_send: bool) -> None:
    """Raise FlowError if other machines can reach the address and that is not allowed."""
    if not is_local(address) and not let_anyone_send:
        raise FlowError(
            f"{address} can be reached from other machines: anybody who reaches this port can send "
            "records, and claim to be any producer. Make keys with `driftline keys` and give "
            "--keys (in a cluster to `driftline agent`), listen at tcp://127.0.0.1:PORT, or give "
            "--let-anyone-send, behind a firewall"
        )


@dataclass(frozen=True, slots=True)
class StartOptions:
    """A savepoint to begin from; `choice`: how to fit it if the flow has changed."""

    savepoint: Savepoint
    choice: Choice = NO_CHOICE


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A flow, its inputs, and how to run it."""

    flow: str
    """The flow as the user named it: node processes load it themselves."""
    inputs: Sequence[Input | RetainedSource]
    """One for each source of the flow, in the same order."""
    output: OutputPlace
    nodes: int
    policy: Policy
    checkpoint_s: float
    state: Path
    dead_letters: bool
    window: int
    kill_every_s: float | None = None
    seed: int = 0
    start: StartOptions | None = None
    """None: from the beginning of the input."""
    limits: Limits = LIMITS
    paths: tuple[str, ...] = ()
    """Directories in which node processes look for modules, after all others."""
    sender_rules: SenderRules = LOCAL_ONLY
    """Who may send to addresses among the inputs."""
    accept_changed_code: bool = False
    """Resume from existing state even if operators have other code than in the last session."""
    fresh: bool = False
    """Remove the state and the outputs of an earlier run first."""
    spares: int = 0
    """Number of warm spare processes."""
    metrics: str = ""
    """Where metrics are served, `HOST:PORT`; "" for nowhere."""
