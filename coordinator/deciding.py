"""Deciding: what every decision of a run has in common, and how the last one is made: its end.

Takes: `Drained` (fronts), `Goodbye` of members, the progress of the run. Gives: writes of the
registry, `Drain` (fronts), `Stop` (members). Invariant: a decision is sent only once the
registry has it; a run has one outcome.

The outcome is written to the registry and no failure changes it from then on. This master, and
every later one of the same run, answers each hello with the outcome until all members have said
goodbye or are silent. The outcome of another run (an earlier call of the command) is forgotten: the
same command, given again, goes on from the state that it finds.
"""

from __future__ import annotations

from dataclasses import replace

from driftline.coordinator.beginning import start_of
from driftline.coordinator.draining import IN_GOOD_ORDER, Draining
from driftline.coordinator.farewell import Farewell
from driftline.coordinator.phases import Phase
from driftline.coordinator.registry import ClusterState, RunOutcome, SnapshotRecord
from driftline.coordinator.resizing import Resizing
from driftline.coordinator.snapshots import Snapshots
from driftline.coordinator.writing import Writing
from driftline.engine.labels import INFINITY
from driftline.engine.policy import Policy
from driftline.engine.wire.messages import Drain, Drained, Goodbye, Message, Stop
from driftline.engine.wire.party import Job


class Deciding:
    """Base of the coordinator. `nodes`, `fronts`: see there."""

    snapshots: Snapshots
    resizing: Resizing

    def __init__(
        self,
        nodes: list[str],
        fronts: int,
        policy: Policy,
        state: ClusterState,
        run: str,
        missing_after_s: float,
        process: str,
    ) -> None:
        self.nodes = nodes
        """Of the layout that the registry has."""
        self.fronts = [f"front-{i}" for i in range(fronts)]
        self.policy = policy
        self.phase = Phase.GATHERING
        self.out: list[tuple[str, Message]] = []
        self.jobs: list[Job] = []
        self.outcome: RunOutcome | None = None
        """How this run ends; None until that is decided."""
        self._run_id = run
        self._missing_after = missing_after_s
        self._now = 0.0
        self._writing = Writing(process)
        self._draining = Draining(self.fronts, policy.cut)
        self._farewell = Farewell(self.nodes + self.fronts, missing_after_s)
        if state.outcome is not None and state.outcome.run == run:
            self.phase, self.outcome = Phase.STOPPED, state.outcome
        else:
            state = replace(state, outcome=None)
        self.state = state

    @property
    def error(self) -> str:
        """Why the run failed; empty if it did not, or is not over."""
        if self.outcome is None or not self.outcome.error:
            return ""
        return f"{self.outcome.error}: {self.outcome.text}"

    @property
    def start(self) -> SnapshotRecord:
        """The snapshot that a recovery begins from; number 0 is the empty snapshot."""
        return start_of(self.state, len(self.fronts))

    @property
    def leads(self) -> bool:
        """Whether the registry has the epoch of this master."""
        return self._writing.begun

    @property
    def is_draining(self) -> bool:
        """Whether the run goes on only until it may end in good order."""
        return self.phase is Phase.RUNNING and bool(self._draining.why)

    def _write(self, state: ClusterState) -> None:
        self.jobs.append(self._writing.begin(state))

    def _tell(self, names: list[str], message: Message) -> None:
        self.out += [(name, message) for name in names]

    def drained(self, name: str, message: Drained) -> None:
        """A front wants the run to end in good order, and has said up to where it sends."""
        self._draining.drained(name, message.time, bool(message.live), bool(message.ended))
        until = self._draining.until
        if until is not None and until < INFINITY:
            self._tell(self.fronts, Drain(until))

    def consider_end(self, processed: int, delivered: int, reached: int) -> None:
        """End a run once all is delivered and in the last snapshot; `reached`: see the tracker."""
        if processed >= INFINITY:
            self._draining.ended(reached)
        if self._draining.is_due(processed, delivered, self.snapshots.number):
            self.snapshots.make_due(self._now)
        if self._draining.is_over(delivered, self.start.number, self.start.time):
            self.stop(text="" if self._draining.has_ended else IN_GOOD_ORDER)

    def stop(self, error: str = "", text: str = "") -> None:
        """Decide to end the run. Members are told once the registry has the outcome."""
        self.phase = Phase.STOPPING
        self.resizing.interrupted()
        self.snapshots.pending = None
        self.outcome = RunOutcome(self._run_id, error, text)
        if not self._writing.under_way:  # else `_stopping` does it once that write is done
            self._write(self.state.next(outcome=self.outcome))

    def _stopping(self) -> None:
        """A write was done after the end was decided; it may be an earlier one."""
        if self.state.outcome is None:
            self._write(self.state.next(outcome=self.outcome))
            return
        self.phase = Phase.STOPPED
        self._tell_outcome(self.nodes + self.fronts)

    def _tell_outcome(self, names: list[str]) -> None:
        assert self.outcome is not None
        self._tell(names, Stop(self.outcome.run, self.outcome.error, self.outcome.text))

    def goodbye(self, name: str, message: Goodbye) -> None:
        """A member knows that the run is over."""
        if self.phase is Phase.STOPPED:
            self._farewell.goodbye(name, message.process)
            self._end_if_over()

    def _end_if_over(self) -> None:
        if self._farewell.over(self._now):
            self.phase = Phase.ENDED
