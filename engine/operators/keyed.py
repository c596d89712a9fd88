"""Base of keyed steps, with the code that arrival order and label order share.

`ArrivalOrder` applies elements in order of arrival, for policies without label order;
`Speculative` and `TimedStep` apply them in label order.

A user function may keep a reference to its argument, to a value that it put into a state, or to an
output that it returned, and change that object later. So the engine stores payloads in a form that
user code cannot change (`engine.state.values`), and a function always gets the payload as it
arrived. At first, states store values as they are. After each batch, the operator checks that user
code cannot change the new values and outputs (`Keyed.undo_if_unsafe`). If it could, the operator
rolls the batch back and applies it again. From then on, its states serialise their values
(`engine.state.table`), or it copies its outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, compress
from operator import itemgetter

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.keygroups import EXACT, ExactKey, exact_keys
from driftline.engine.labels import Label
from driftline.engine.operators.context import Context, Failure
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.outputs import OutputEncoder
from driftline.engine.operators.steps import (
    FailureReporter,
    Signs,
    Step,
    Values,
    children,
    collect_outputs,
    select_elements,
    with_event_times,
)
from driftline.engine.state.changelog import Changelog
from driftline.engine.state.managed import (
    ALL,
    MISSING,
    MapState,
    UndoLog,
    columns_of,
    keys_of_removals,
    undo,
)
from driftline.engine.state.table import StateTable, are_empty, serialise
from driftline.engine.state.values import (
    can_stay_unfrozen,
    copy_outputs,
    freeze_arguments,
    freeze_outputs,
    holds,
    is_plain,
    thaw_argument,
)
from driftline.engine.wire.codec import round_trip
from driftline.engine.wire.label_columns import Labels


class Keyed:
    """Base of keyed steps: owns the states, calls the function, sends the outputs.

    `keeps_changelog`: whether final changes go to the changelog, for snapshots; `encoder`: encodes
    this operator's outputs where they leave the chain.
    """

    def __init__(
        self,
        vertex: Vertex,
        next_step: Step,
        failures: FailureReporter,
        keeps_changelog: bool = True,
        encoder: OutputEncoder | None = None,
    ) -> None:
        assert vertex.key is not None
        assert vertex.function is not None
        self.vertex = vertex
        self.key = vertex.key
        self.function = vertex.function
        self.emits_many = vertex.operator.emits_many
        is_direct = len(vertex.states) == 1 and not self.emits_many
        self.direct_function = self.function if is_direct else None
        """The user function, if it can be called directly with a payload and one state. None if
        `call` is needed: the operator does not have exactly one state, may emit several outputs per
        element, or copies its outputs."""
        self.next_step = next_step
        self.failures = failures
        self.keeps_changelog = keeps_changelog
        self.encoder = encoder or OutputEncoder(vertex.name, vertex.fields)
        self._has_maps = any(isinstance(state, MapState) for state in vertex.states)
        self.undo_log: UndoLog = []
        """Changes of the batch that is being applied, oldest first."""
        self.table = StateTable(vertex.states, self.undo_log)
        self.changelog = Changelog(vertex.name, vertex.states)
        self.frozen_results: Values = []
        """Results of the batch, in a form that user code cannot change."""
        self.must_serialise_states = False
        """Whether the next `undo_if_unsafe` must switch to serialised states, because a function
        raised after it had put a mutable value into one."""
        self.copies_outputs = False
        """Whether each output is copied as soon as the function returns it."""
        self.elements = 0
        """Number of elements and tombstones that arrived."""
        self.out_of_order = 0
        """Number of elements that arrived after a later element of the same key was applied."""
        self.reapplied = 0
        """How often an element was undone because of an earlier element or tombstone, and applied
        again."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        """Take a batch of elements."""
        raise NotImplementedError

    def close(self, frontier: int) -> None:
        """Drop undo information: no element with a time below the frontier can arrive any more."""

    def settle(self, frontier: int, exactly: bool = False) -> None:
        """Move the changes of elements below the frontier, which are final, to the changelog.

        Unless `exactly`, stop before the first batch that has elements at or above the frontier.
        """

    def prepare_batch(self, values: Values) -> tuple[Values, list[object], Values]:
        """Return (stored payloads, exact keys, payloads for the function) of a batch."""
        stored = freeze_arguments(values)
        keys = list(map(self.key, values))
        assert len(keys) == len(values), "the sender has checked that each element has a key"
        if not EXACT.issuperset(map(type, keys)):
            keys = exact_keys(keys)
        if isinstance(self.key, itemgetter):
            return stored, keys, values
        if stored is not values:
            # The key function may have changed its argument.
            values = list(map(thaw_argument, stored))
        return stored, keys, values

    def call(self, label: Label, key: object, value: object) -> object:
        """Call the user function; return an output, a list of outputs, or a Failure."""
        states = self.table.states(key)
        changes_before = len(self.undo_log)
        try:
            if self.emits_many:
                user_key = key.value if type(key) is ExactKey else key
                outputs = collect_outputs(self.function(Context(label, user_key), value, *states))
                return self._copy_outputs(key, outputs) if self.copies_outputs else outputs
            result = self.function(value, *states)
            return self._copy_outputs(key, [result])[0] if self.copies_outputs else result
        except BaseException as error:
            return self.roll_back_failed_call(key, value, error, changes_before)

    def roll_back_failed_call(
        self, key: object, value: object, error: BaseException, changes_before: int
    ) -> Failure:
        """Undo the changes of a function that raised; return the failure.

        `changes_before`: the length of the undo log before the call.
        """
        if not self.are_values_safe(self.undo_log[changes_before:]):
            self.must_serialise_states = True  # the failure may depend on values changed in place
        self.roll_back(changes_before)
        return Failure.from_exception(self.vertex.name, key, value, error, self.vertex.line)

    def _copy_outputs(self, key: object, outputs: Values) -> Values:
        """Copy outputs, so that user code cannot change them.

        If another function of the chain takes the outputs, those that cannot be encoded become
        failures.
        """
        if not self.encoder.functions_follow:
            return copy_outputs(outputs)
        return [self._as_received(key, output) for output in outputs]

    def _as_received(self, key: object, output: object) -> object:
        """Return an output as another node would receive it; a Failure if it cannot be encoded."""
        if is_plain(output):
            return output
        try:
            return round_trip(output)
        except (PayloadError, MalformedMessage) as error:
            return Failure.from_output(self.vertex.name, key, output, str(error))

    def call_until_safe(self, label: Label, key: object, stored: object) -> object:
        """Call the user function for an element; return the result.

        If the attempt is unsafe, undo and repeat it (see `undo_if_unsafe`). Sets `frozen_results`
        to a list of the result. `stored`: the stored payload.
        """
        changes_before = len(self.undo_log)
        result = self.call(label, key, thaw_argument(stored))
        while self.undo_if_unsafe([result], changes_before):
            result = self.call(label, key, thaw_argument(stored))
        return result

    def are_values_safe(self, changes: UndoLog) -> bool:
        """Return whether user code cannot change the new values in these changes."""
        if self.table.convert is not None or not changes:  # serialised values cannot change
            return True
        _, slots, _, new_values = columns_of(changes)
        if can_stay_unfrozen(slots, new_values):
            return True
        # ALL and MISSING stand for removals, and are no values.
        return can_stay_unfrozen(
            [slot for slot in slots if slot is not ALL],
            [value for value in new_values if value is not MISSING],
        )

    def undo_if_unsafe(self, results: Values, changes_before: int = 0) -> bool:
        """Roll a batch back if user code could still change its values; return whether it must be
        applied again.

        Precondition: `undo_log[changes_before:]` holds the changes of the batch. If the result is
        True, the operator from now on serialises its states, or copies its outputs,
        so that user code cannot change the values of the next attempt. If the result is False,
        `frozen_results` is set.

        The operator begins to copy outputs in two cases: another function of the chain takes
        mutable outputs, or an output contains a MapState, which the next element of the key may
        change. In the first case it copies by encoding and decoding.
        """
        if self.must_serialise_states or not self.are_values_safe(self.undo_log[changes_before:]):
            serialise(self.table)
            self.must_serialise_states = False
        elif not self._freeze_or_start_copying(results):
            return False
        self.roll_back(changes_before)
        return True

    def _freeze_or_start_copying(self, results: Values) -> bool:
        """Set `frozen_results`. Return whether the operator begins to copy outputs at this call."""
        self.frozen_results = self.freeze_results(results)
        if self.frozen_results is results or self.copies_outputs:
            return False
        if not (self.encoder.functions_follow or self._contain_map_states(results)):
            return False
        self.copies_outputs = True
        self.direct_function = None
        return True

    def _contain_map_states(self, results: Values) -> bool:
        if not self._has_maps:
            return False
        outputs = results
        if self.emits_many:
            outputs = [*chain.from_iterable(r for r in results if isinstance(r, list))]
        return holds(MapState, outputs)

    def freeze_results(self, results: Values) -> Values:
        """Return results in an immutable form: the same list if they are immutable already."""
        if not self.emits_many:
            return freeze_outputs(results, self.encoder.functions_follow)
        lists = [result for result in results if isinstance(result, list)]
        outputs = [*chain.from_iterable(lists)]
        if freeze_outputs(outputs, self.encoder.functions_follow) is outputs:
            return results
        return [freeze_outputs(r, True) if isinstance(r, list) else r for r in results]

    def roll_back(self, changes_before: int) -> None:
        """Undo all changes in the undo log except the first `changes_before`."""
        undo(self.undo_log[changes_before:])
        del self.undo_log[changes_before:]

    def add_changes(self, changes: UndoLog) -> list[object]:
        """Add final changes to the changelog. Returns the keys with removals."""
        if self.keeps_changelog:
            return self.changelog.add_changes(changes)
        return keys_of_removals(changes)

    def emit(self, labels: Labels, keys: list[object], results: Values) -> None:
        """Send results to the next step, and failures to the barrier."""
        if not self.emits_many:
            self.send_outputs(labels, keys, results, None)
            return
        are_outputs = self.failures.report_failures(labels, results, None)
        if are_outputs is not None:
            keys = list(compress(keys, are_outputs))
            labels, results, _ = select_elements((labels, results, None), are_outputs)
        self.encoder.labels, self.encoder.keys = labels, keys
        for batch in children(labels, results, None):  # type: ignore[arg-type]
            if (
                self.copies_outputs
                and (are_outputs := self.failures.report_failures(*batch)) is not None
            ):
                batch = select_elements(batch, are_outputs)
            if self.vertex.operator.sets_event_times:
                batch = with_event_times(batch)
            if batch[0]:
                self.next_step.push(*batch)

    def send_outputs(
        self, labels: Labels, keys: list[object], outputs: Values, signs: Signs
    ) -> None:
        """Send outputs, one for each label, to the next step, and failures to the barrier."""
        are_outputs = self.failures.report_failures(labels, outputs, signs)
        if are_outputs is not None:
            keys = list(compress(keys, are_outputs))
            labels, outputs, signs = select_elements((labels, outputs, signs), are_outputs)
        self.encoder.labels, self.encoder.keys = labels, keys
        if labels:
            self.next_step.push(labels, outputs, signs)

    def validate(self) -> None:
        """Assert the invariants that can be checked."""
        assert not self.undo_log
        if empty := [key for key, states in self.table.items() if are_empty(states)]:
            reclaimable = {*self.table.perhaps_empty, *self.keys_with_removals()}
            for key in empty:
                assert key in reclaimable, f"operator {self.vertex.name!r} never drops key {key!r}"

    def keys_with_removals(self) -> Iterable[object]:
        """Return the keys of unsettled changes that removed a value from a state."""
        return ()


class ArrivalOrder(Keyed):
    """Keyed step that applies elements in order of arrival, and never undoes one."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        assert signs is None, "a policy without label order has no tombstones"
        self.elements += len(labels)
        stored, keys, values = self.prepare_batch(values)
        results = self._apply(labels, keys, values)
        while self.undo_if_unsafe(results):
            results = self._apply(labels, keys, list(map(thaw_argument, stored)))
        self.table.perhaps_empty += self.add_changes(self.undo_log)
        if self.table.perhaps_empty:
            self.table.reclaim()
        self.undo_log.clear()
        self.emit(labels, keys, results)

    def _apply(self, labels: Labels, keys: list[object], values: Values) -> Values:
        call, apply, undo_log = self.call, self.direct_function, self.undo_log
        if apply is None:
            return list(map(call, labels, keys, values))
        results: Values = []
        for key, value, state in zip(keys, values, map(self.table.__getitem__, keys), strict=True):
            changes_before = len(undo_log)
            try:
                results.append(apply(value, state))
            except BaseException as error:
                results.append(self.roll_back_failed_call(key, value, error, changes_before))
        return results
