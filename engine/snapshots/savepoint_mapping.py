"""Fit a savepoint to a flow: assign its state to operators, by name.

A flow may differ from the one that made the savepoint. An operator or a state that the savepoint
lacks starts empty. State that the flow lacks would be lost. So `fit` rejects the savepoint, unless
the user drops this state by name or assigns it to another operator.

An operator without a name from the user is named by its kind and position (`scan-3`). If operators
are added or removed before it, another operator may get its name. So a name by position identifies
the operator only if the flow is unchanged up to there; otherwise the user has to assign the state.

Inputs: a savepoint, a flow, and `MappingOptions`. Outputs: the segments of each key group for the
flow, and `notes` for the user. Invariant: each non-empty state of the savepoint goes to exactly
one state of the same type, or the user dropped it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from driftline.engine.errors import StateMismatch
from driftline.engine.event_time import NEVER, Status
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.outline import OperatorOutline, Outline, has_default_name, make_outline
from driftline.engine.snapshots.jobs import LoadSnapshot, StoreSnapshot
from driftline.engine.snapshots.merging import read_segment
from driftline.engine.snapshots.savepoint import Savepoint, open_savepoint
from driftline.engine.snapshots.store import PartStore
from driftline.engine.state.changelog import encode_chunk

T = TypeVar("T")


class MappingOptions(Struct, frozen=True):
    """How to map the state of a savepoint to a different flow.

    `drop`: operators whose state to drop, or `OPERATOR.STATE`; `rename`: (old name, new name) of
    operators and sources.
    """

    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()


DEFAULT_MAPPING = MappingOptions()


class RestoredState(Struct, frozen=True):
    """State with which an operator starts: that of `old_operator` in the savepoint."""

    old_operator: str
    states: frozenset[str]
    """Names of the states that are restored."""
    is_unchanged: bool
    """Whether the savepoint's segments are used unchanged."""


class Fitted(Struct, frozen=True):
    """A savepoint, fitted to a flow."""

    savepoint: Savepoint
    """The savepoint; its event times and last records have the new names of the sources."""
    restored: Mapping[str, RestoredState]
    """Operator of the flow -> its initial state. Operators without an entry start empty."""
    inputs: Mapping[str, bool | None]
    """Source of the savepoint, by its new name -> whether its records are numbered from 1; None if
    unknown."""
    notes: tuple[str, ...] = ()
    """Messages for the user about state that starts empty or is dropped, and removed sources."""
    has_single_source: bool = False
    """Whether the savepoint has only one source: all its times are then times of this source."""

    def has_ended(self, source: str) -> bool:
        """Return whether a source with event times had ended when the savepoint was made."""
        return self.savepoint.event_times.get(source, (NEVER, Status.ACTIVE))[1] == Status.ENDED

    def segment(self, group: int) -> bytes:
        """Return the state of all operators for a key group. Raises SnapshotDamaged."""
        return b"".join(
            self._operator_segment(group, name, restored)
            for name, restored in self.restored.items()
        )

    def _operator_segment(self, group: int, name: str, restored: RestoredState) -> bytes:
        segment = self.savepoint.segment(group, restored.old_operator)
        if restored.is_unchanged:
            return segment
        return b"".join(
            encode_chunk(name, state, rows)
            for _, state, rows in read_segment(segment)
            if state in restored.states
        )


def fit(savepoint: Savepoint, flow: Flow, options: MappingOptions = DEFAULT_MAPPING) -> Fitted:
    """Fit a savepoint to a flow. Raises StateMismatch, which lists all problems."""
    current = make_outline(flow)
    if current.groups != savepoint.groups:
        raise StateMismatch(
            f"savepoint {savepoint.path} has {savepoint.groups} key groups, and flow {flow.name!r} "
            f"has {current.groups}: the numbers must be equal. Create the flow with "
            f"Flow({flow.name!r}, groups={savepoint.groups})"
        )
    return _Fitting(savepoint, savepoint.flow_outline, current, options).fitted()


class _Fitting(Struct):
    """One call of `fit`; `before`, `current`: outlines of the savepoint's flow and of the flow."""

    savepoint: Savepoint
    before: Outline
    current: Outline
    options: MappingOptions
    restored: dict[str, RestoredState] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    unknown_drops: set[str] = field(default_factory=set)
    """Entries of `options.drop` that no operator or state of the savepoint has matched so far."""

    def fitted(self) -> Fitted:
        self.unknown_drops = {*self.options.drop}
        renamed = self._renamed()
        inputs: dict[str, bool | None] = {}
        for operator in self.before.operators:
            name = renamed.get(operator.name, operator.name)
            if operator.kind == "source":
                inputs[name] = self.savepoint.inputs.get(operator.name)
            elif operator.states and not self._is_dropped(operator.name):
                self._assign(operator, name, confirmed=operator.name in renamed)
            elif operator.states:
                self.dropped.append(str(operator))
        self._reject_unknown_drops()
        if self.problems:
            lines = "".join(f"\n  {text}" for text in self.problems)
            raise StateMismatch(
                f"savepoint {self.savepoint.path} does not fit flow {self.current.flow!r}:{lines}"
            )
        notes = [f"{text} starts empty" for text in self._starting_empty()]
        notes += [f"{text} is dropped" for text in self.dropped]
        removed = [name for name in inputs if name not in self.current.sources]
        notes += [f"source {name!r} is no longer in the flow" for name in removed]
        savepoint = replace(
            self.savepoint,
            event_times=_with_new_names(self.savepoint.event_times, renamed),
            last_records=_with_new_names(self.savepoint.last_records, renamed),
        )
        return Fitted(savepoint, self.restored, inputs, tuple(notes), len(inputs) == 1)

    def _renamed(self) -> dict[str, str]:
        """Return `MappingOptions.rename` as old name -> new name; add its errors to `problems`."""
        renamed = dict(self.options.rename)
        known = {each.name for each in self.before.operators}
        current_names = {each.name for each in self.current.operators}
        stateful = self._stateful_names
        for old, new in self.options.rename:
            option = f"--rename-state {old}={new}"
            if old not in known:
                self.problems.append(f"{option}: the savepoint has no operator or source {old!r}")
            elif new not in current_names:
                self.problems.append(f"{option}: the flow has no {new!r}")
            elif new in stateful and new not in {*renamed, *self.options.drop}:
                self.problems.append(
                    f"{option}: the savepoint also has {new!r}: rename that, or "
                    f"--drop-state {quote(new)}"
                )
        if len({*renamed.values()}) < len(self.options.rename):
            self.problems.append("--rename-state names an operator twice")
        return renamed

    @property
    def _stateful_names(self) -> list[str]:
        """Names of the savepoint's operators with state, and of its sources."""
        operators = self.before.operators
        return [each.name for each in operators if each.states or each.kind == "source"]

    def _is_dropped(self, name: str) -> bool:
        """Return whether the user drops a known operator or state; record that it is known."""
        self.unknown_drops.discard(name)
        return name in self.options.drop

    def _assign(self, old: OperatorOutline, name: str, *, confirmed: bool) -> None:
        """Assign the state of operator `old` to operator `name` of the flow, or add problems.

        `confirmed`: `name` is as the user demanded (`MappingOptions.rename`).
        """
        if not self.savepoint.holds(old.name):
            self.unknown_drops -= {f"{old.name}.{state}" for _, state in old.states}
            return
        target = next((each for each in self.current.operators if each.name == name), None)
        if target is None:
            self.problems.append(
                f"{old} is not in the flow, and its state would be lost: --drop-state "
                f"{quote(old.name)} drops it, --rename-state {quote(f'{old.name}=NEW')} gives it "
                "to operator NEW"
            )
            return
        if has_default_name(old) and not confirmed and not self._has_same_position(old):
            self.problems.append(
                f"{old} has no name of its own, and the flow has changed before it: "
                f"--rename-state {quote(f'{old.name}={target.name}')} gives its state to "
                f"{target.name!r}, --drop-state {quote(old.name)} drops the state"
            )
            return
        types = {state: type_ for type_, state in target.states}
        states = set()
        for type_, state in old.states:
            if self._is_dropped(f"{old.name}.{state}"):
                self.dropped.append(f"state {state!r} of {old}")
            elif types.get(state) == type_:
                states.add(state)
            else:
                change = f"is a {types[state]} now" if state in types else "no longer exists"
                self.problems.append(
                    f"{old}: its state {state!r}, a {type_}, {change}: --drop-state "
                    f"{quote(f'{old.name}.{state}')} drops its values, --drop-state "
                    f"{quote(old.name)} all states of the operator"
                )
        is_unchanged = name == old.name and len(states) == len(old.states)
        self.restored[name] = RestoredState(old.name, frozenset(states), is_unchanged)

    def _has_same_position(self, operator: OperatorOutline) -> bool:
        """Return whether the flow is unchanged up to an operator, except for renamed ones."""
        end = self.before.operators.index(operator) + 1
        new_names = dict(self.options.rename)
        old_operators = [
            (each.kind, *(new_names.get(name, name) for name in (each.name, *each.inputs)))
            for each in self.before.operators[:end]
        ]
        operators = [(each.kind, each.name, *each.inputs) for each in self.current.operators[:end]]
        return old_operators == operators

    def _starting_empty(self) -> list[str]:
        """Return the operators and states that start empty.

        Omit operators whose state is empty in the savepoint, too.
        """
        texts = []
        for operator in self.current.operators:
            restored = self.restored.get(operator.name)
            names = [name for _, name in operator.states]
            if names and restored is None:
                if not self._was_empty(operator):
                    texts.append(str(operator))
            elif restored is not None:
                texts += [
                    f"state {name!r} of {operator}" for name in names if name not in restored.states
                ]
        return texts

    def _was_empty(self, operator: OperatorOutline) -> bool:
        """Return whether the savepoint's flow has the operator, but with empty state."""
        operator_before = next(
            (each for each in self.before.operators if each.name == operator.name), None
        )
        return operator_before is not None and not self.savepoint.holds(operator_before.name)

    def _reject_unknown_drops(self) -> None:
        names = ", ".join(each.name for each in self.before.operators if each.states)
        for name in sorted(self.unknown_drops):
            self.problems.append(
                f"--drop-state {name}: the savepoint has no such state; operators with state: "
                f"{names or 'none'}"
            )


def _with_new_names(by_source: Mapping[str, T], renamed: Mapping[str, str]) -> dict[str, T]:
    return {renamed.get(name, name): value for name, value in by_source.items()}


FIRST_SNAPSHOT = 1
"""Number of the snapshot that `initialise_store` writes."""


class InitialState(Struct, frozen=True):
    """Initial state of a flow: a savepoint; `drop`, `rename`: the user's `MappingOptions`."""

    savepoint: str = ""
    """Directory of the savepoint; "": the flow starts with empty state."""
    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    title: str = ""
    """Name and time of the savepoint (`Savepoint.title`), independent of its location."""

    def fitted(self, flow: Flow) -> Fitted:
        """Fit the savepoint to a flow. Raises StateMismatch, SnapshotDamaged, Unavailable."""
        options = MappingOptions(self.drop, self.rename)
        return fit(open_savepoint(Path(self.savepoint)), flow, options)


EMPTY_STATE = InitialState()


def initialise_store(store: PartStore, fitted: Fitted, groups: Iterable[int]) -> None:
    """Store the state of these key groups as the first and only snapshot of a node.

    Raises SnapshotDamaged, Unavailable.
    """
    segments = {group: segment for group in groups if (segment := fitted.segment(group))}
    store.execute_job(LoadSnapshot(0))  # removes the parts of an interrupted attempt
    store.execute_job(StoreSnapshot(FIRST_SNAPSHOT, segments, b""))
