"""The configuration of a run on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from driftline.connectors.inputs import Input
from driftline.connectors.outputs import OutputPlace
from driftline.deploy.local.inputs.reach import HERE, Reach
from driftline.deploy.runtime.config import LIMITS, Limits
from driftline.engine.policy import Policy
from driftline.engine.snapshots.fitting import AS_IT_IS, Choice
from driftline.engine.snapshots.savepoint import Savepoint
from driftline.engine.sources import RetainedSource


@dataclass(frozen=True, slots=True)
class Start:
    """A savepoint to begin from; `choice`: what the user says where its flow was another one."""

    savepoint: Savepoint
    choice: Choice = AS_IT_IS


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A flow, its inputs, and how to run it."""

    flow: str
    """The name of the flow, as the user gave it: node processes load the flow themselves."""
    inputs: Sequence[Input | RetainedSource]
    """One for each source of the flow, in their order."""
    output: OutputPlace
    nodes: int
    policy: Policy
    checkpoint_s: float
    state: Path
    dead_letters: bool
    window: int
    kill_every_s: float | None = None
    seed: int = 0
    start: Start | None = None
    """None: from the beginning of the input."""
    limits: Limits = LIMITS
    paths: tuple[str, ...] = ()
    """Folders in which node processes look for modules, after all others."""
    reach: Reach = HERE
    """Who may send to addresses among the inputs."""
    accept_changed_code: bool = False
    """Go on, if there is a state, though operators have other code than in the session before."""
    fresh: bool = False
    """Remove the state and the outputs of an earlier run first."""
    spares: int = 0
    """Processes that are kept ready to take the place of those that die."""
    metrics: str = ""
    """Where metrics are served, `HOST:PORT`; "": nowhere."""
