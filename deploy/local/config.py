"""The configuration of a run on this machine, and the rules for its producers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from driftline.connectors.inputs import Input
from driftline.connectors.outputs import OutputPlace
from driftline.deploy.runtime.config import LIMITS, Limits
from driftline.deploy.runtime.sockets.intake_socket import Keys
from driftline.deploy.runtime.sockets.keys import Authorised, own_key
from driftline.deploy.runtime.sockets.listening import fault_of, is_local
from driftline.engine.errors import FlowError
from driftline.engine.policy import Policy
from driftline.engine.snapshots.savepoint import Savepoint
from driftline.engine.snapshots.savepoint_mapping import DEFAULT_MAPPING, MappingOptions
from driftline.engine.sources import RetainedSource


class SenderRules(Struct, frozen=True):
    """Rules for the producers that connect to the inputs of a run that are addresses."""

    let_anyone_send: bool = False
    """Allow addresses that other machines can reach, even without keys."""
    keys: Path | None = None
    """The key file of this host, or the directory that contains it; None: without keys."""
    sources: tuple[str, ...] = ()
    """The names of the flow's sources."""

    def keys_of(self, number: int, address: str) -> Keys | None:
        """Return the keys of the intake that receives records of source `number` at an address.

        Return None without keys, and for addresses that are not TCP. Raises NotPermitted,
        Unavailable.
        """
        if self.keys is None or not address.startswith("tcp://"):
            return None
        directory = self.keys if self.keys.is_dir() else self.keys.parent
        return Keys(own_key(self.keys), Authorised(directory), self.sources[number])


LOCAL_ONLY = SenderRules()
"""Only processes of this machine may send; they need no keys."""


def check_input(number: int, flow_input: object, rules: SenderRules = LOCAL_ONLY) -> None:
    """If an input is an address, check its syntax and that `rules` allow producers to connect.

    An address that other machines can reach requires keys or `let_anyone_send`. Raises FlowError;
    with keys also NotPermitted and Unavailable.
    """
    if not isinstance(flow_input, str):
        return
    check_syntax(flow_input)
    has_keys = rules.keys_of(number, flow_input) is not None
    if not (has_keys or rules.let_anyone_send or is_local(flow_input)):
        raise FlowError(
            f"other machines can connect to {flow_input}, send records, and claim to be any "
            "producer. Make keys with `driftline keys` and give --keys (in a cluster to `driftline "
            "agent`), listen at tcp://127.0.0.1:PORT, or give --let-anyone-send, behind a firewall"
        )


def check_syntax(address: str) -> None:
    """Raise FlowError if an address is not a valid tcp:// or ipc:// address to listen on."""
    if fault := fault_of(address):
        raise FlowError(f"cannot listen for producers on {address}: {fault}")


class StartOptions(Struct, frozen=True):
    """A savepoint to begin from; `mapping`: how to map its state to a changed flow."""

    savepoint: Savepoint
    mapping: MappingOptions = DEFAULT_MAPPING


class RunConfig(Struct, frozen=True):
    """A flow, its inputs, and how to run it."""

    flow: str
    """The flow as the user named it; nodes and master load it."""
    inputs: Sequence[Input | RetainedSource]
    """One input for each source of the flow, in the same order."""
    output: OutputPlace
    nodes: int
    policy: Policy
    snapshot_interval_s: float
    """Seconds between two snapshots."""
    state: Path
    """The state directory."""
    dead_letters: bool
    """Set aside bad records and elements whose function raises, instead of ending the run."""
    window: int | None
    """Maximum number of records in flight, per front; None: automatic."""
    kill_every_s: float | None = None
    """Seconds between two kills of a random process; None: no kills."""
    start: StartOptions | None = None
    """The savepoint that a new run begins from; None: it begins with empty state."""
    limits: Limits = LIMITS
    paths: tuple[str, ...] = ()
    """Directories that nodes and master append to their module search path."""
    sender_rules: SenderRules = LOCAL_ONLY
    """Rules for the producers that connect to inputs that are addresses."""
    accept_changed_code: bool = False
    """Resume from existing state even if the code of operators has changed since the last start."""
    fresh: bool = False
    """Remove the state and the outputs of an earlier run first."""
    metrics: str = ""
    """Where metrics are served, `HOST:PORT`; "" for nowhere."""
