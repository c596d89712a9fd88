"""Keyed operators: state per key, and what all orders of elements share.

`Arrival` applies elements as they come, for the modes that have no order. Label order is the
matter of `engine.order.speculative`.

A function may change its argument, and what it has put into a state or given away: arguments are
kept as `engine.state.values` keeps them, and where a batch's changes cannot be kept as they are,
the batch is taken back and applied anew to states that serialise (`engine.state.serialised`). So a
function that raises is called once for an element in an order, and always with what arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, compress
from operator import itemgetter

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.flow.context import Context, Failure
from driftline.engine.flow.flow import Vertex
from driftline.engine.labels import Label
from driftline.engine.order.ends import Maker
from driftline.engine.order.steps import Failures, Signs, Step, Values, children, chosen, iterable
from driftline.engine.state.changelog import Changelog
from driftline.engine.state.managed import ALL, MISSING, Change, MapState, StateTable, undo
from driftline.engine.state.serialised import serialise
from driftline.engine.state.values import (
    ATOMS,
    all_plain,
    copies,
    fresh,
    holds,
    is_plain,
    kept_outputs,
    may_be_kept,
    stored,
)
from driftline.engine.wire.codec import travelled
from driftline.engine.wire.label_columns import Labels


class Keyed:
    """What all orders share: the states, the call of the user function, the way out.

    `record`: whether there are snapshots that final changes are kept for.
    """

    def __init__(
        self,
        vertex: Vertex,
        after: Step,
        failures: Failures,
        record: bool = True,
        maker: Maker | None = None,
    ) -> None:
        assert vertex.key is not None
        assert vertex.function is not None
        self.vertex = vertex
        self.key = vertex.key
        self.function = vertex.function
        self.many = vertex.kind == "process"
        self.apply = self.function if len(vertex.states) == 1 and not self.many else None
        """The function itself where it takes just an element and a state: the fast way."""
        self.after = after
        self.failures = failures
        self.record = record
        self.maker = maker or Maker(vertex.name, vertex.fields)
        self._has_maps = any(isinstance(state, MapState) for state in vertex.states)
        self.undo_log: list[Change] = []
        """The changes of the batch that is being applied."""
        self.table = StateTable(vertex.states, self.undo_log)
        self.changelog = Changelog(vertex.name, vertex.states)
        self.given: Values = []
        """The results of the batch as they are kept while what comes next works on them."""
        self.to_serialise = False
        """Whether states have to serialise for a function that has raised."""
        self.gives_own = False
        """Whether each output is made one of its own as soon as the function has given it."""
        self.elements = 0
        self.late = 0
        """Elements that came when something after them had been applied."""
        self.reapplied = 0
        """Elements that were undone for the sake of late ones, and applied again."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        """Take a batch of elements."""
        raise NotImplementedError

    def close(self, frontier: int) -> None:
        """No element with a time below the frontier will come any more."""

    def settle(self, frontier: int, exactly: bool = False) -> None:
        """Elements with a time below the frontier are final.

        A batch that is only partly final, and those after it, wait for later unless `exactly`.
        """

    def arrived(self, values: Values) -> tuple[Values, list[object], Values]:
        """What has arrived: as it is kept, its keys, and as it is to be applied."""
        kept = stored(values)
        keys = list(map(self.key, values))
        assert len(keys) == len(values), "every element that is sent has a key"
        if isinstance(self.key, itemgetter):
            return kept, keys, values
        if not ATOMS.issuperset(map(type, keys)) and not all_plain(keys):
            keys = list(map(travelled, keys))  # a class of its own may have an equality of its own
        if kept is not values:
            values = list(map(fresh, kept))  # a key function may have changed its argument
        return kept, keys, values

    def call(self, label: Label, key: object, value: object) -> object:
        """The result of the user function: an output, a list of outputs, or a Failure."""
        states = self.table.states(key)
        before = len(self.undo_log)
        try:
            if self.many:
                outputs = iterable(self.function(Context(label, key), value, *states))
                return self._own(key, outputs) if self.gives_own else outputs
            result = self.function(value, *states)
            return self._own(key, [result])[0] if self.gives_own else result
        except BaseException as error:
            return self.failed(key, value, error, before)

    def failed(self, key: object, value: object, error: BaseException, before: int) -> Failure:
        """The function has raised: what it has changed since then is taken back."""
        if not self.can_keep(self.undo_log[before:]):
            self.to_serialise = True  # it may tell what it has seen in its states
        self.take_back(before)
        return Failure.of(self.vertex.name, key, value, error)

    def _own(self, key: object, outputs: Values) -> Values:
        """Outputs that nothing else can change; a failure instead of each that cannot travel."""
        if not self.maker.functions_follow:
            return copies(outputs)
        return [self._arriving(key, output) for output in outputs]

    def _arriving(self, key: object, output: object) -> object:
        """An output as it would arrive elsewhere, so that a function sees it in no other form."""
        if is_plain(output):
            return output
        try:
            return travelled(output)
        except (PayloadError, MalformedMessage) as error:
            return Failure.of_output(self.vertex.name, key, output, str(error))

    def call_again(self, label: Label, key: object, kept: object) -> object:
        """`call` for one element that has been kept; `given` is its result as it is kept."""
        before = len(self.undo_log)
        result = self.call(label, key, fresh(kept))
        while self.begins_again([result], before):
            result = self.call(label, key, fresh(kept))
        return result

    def can_keep(self, changes: Sequence[Change]) -> bool:
        """Whether changes can be kept as they are; states that serialise see to it themselves."""
        if self.table.convert is not None or not changes:
            return True
        _, slots, _, news = zip(*changes, strict=True)
        return may_be_kept(slots, news) or may_be_kept(  # where something is removed
            [slot for slot in slots if slot is not ALL],
            [new for new in news if new is not MISSING],
        )

    def begins_again(self, results: Values, before: int = 0) -> bool:
        """Whether what a batch has changed or given cannot be kept; if it can, `given` is how.

        `before`: how many changes in the undo_log are not the batch's. If it begins again, it is
        taken back, and when it is applied anew all can be kept: states serialise; an output that
        holds a state itself, which the next element of its key changes, is copied; and one that
        functions come to see is brought to the form in which values travel.
        """
        if self.to_serialise or not self.can_keep(self.undo_log[before:]):
            serialise(self.table)
            self.to_serialise = False
        elif not self._must_own(results):
            return False
        self.take_back(before)
        return True

    def _must_own(self, results: Values) -> bool:
        """Whether outputs have to be ones of their own from now on; sets `given`."""
        self.given = self.kept_results(results)
        if self.given is results or self.gives_own:
            return False
        if not (self.maker.functions_follow or self._holds_states(results)):
            return False
        self.gives_own = True
        self.apply = None
        return True

    def _holds_states(self, results: Values) -> bool:
        if not self._has_maps:
            return False
        outputs = results
        if self.many:
            outputs = [*chain.from_iterable(r for r in results if isinstance(r, list))]
        return holds(MapState, outputs)

    def kept_results(self, results: Values) -> Values:
        """Results as they can be kept: the same list if nothing can change them."""
        if not self.many:
            return kept_outputs(results, self.maker.functions_follow)
        lists = [result for result in results if isinstance(result, list)]
        outputs = [*chain.from_iterable(lists)]
        if kept_outputs(outputs, self.maker.functions_follow) is outputs:
            return results
        return [kept_outputs(r, True) if isinstance(r, list) else r for r in results]

    def take_back(self, before: int) -> None:
        """Undo the changes in the undo_log but for the first `before`."""
        undo(self.undo_log[before:])
        del self.undo_log[before:]

    def keep(self, changes: list[Change]) -> list[object]:
        """These changes are final. Returns the keys that lost something."""
        if self.record:
            return self.changelog.keep(changes)
        return [state.key for state, _, _, new in changes if new is MISSING]

    def reclaim(self, keys: Iterable[object]) -> None:
        """Forget those keys that have nothing in their states."""
        for key in keys:
            self.table.reclaim(key)

    def emit(self, labels: Labels, keys: list[object], results: Values, signs: Signs) -> None:
        """Send results on; failures go where failures go."""
        good = self.failures.sort_out(labels, results, signs)
        if good is not None:
            keys = list(compress(keys, good))
            labels, results, signs = chosen((labels, results, signs), good)
        self.maker.labels, self.maker.keys = labels, keys
        if self.many:
            for batch in children(labels, results, signs):  # type: ignore[arg-type]
                if self.gives_own and (good := self.failures.sort_out(*batch)) is not None:
                    batch = chosen(batch, good)
                if batch[0]:
                    self.after.push(*batch)
        elif labels:
            self.after.push(labels, results, signs)

    def validate(self) -> None:
        """Assert what can be checked of the invariant."""
        assert not self.undo_log


class Arrival(Keyed):
    """No order: elements are applied as they come, and nothing can be undone."""

    def push(self, labels: Labels, values: Values, signs: Signs) -> None:
        assert signs is None, "without an order nothing is ever taken back"
        self.elements += len(labels)
        kept, keys, values = self.arrived(values)
        results = self._apply(labels, keys, values)
        while self.begins_again(results):
            results = self._apply(labels, keys, list(map(fresh, kept)))
        self.reclaim(self.keep(self.undo_log))
        self.undo_log.clear()
        self.emit(labels, keys, results, None)

    def _apply(self, labels: Labels, keys: list[object], values: Values) -> Values:
        call, apply, undo_log = self.call, self.apply, self.undo_log
        if apply is None:
            return list(map(call, labels, keys, values))
        results: Values = []
        for key, value, state in zip(keys, values, map(self.table.__getitem__, keys), strict=True):
            before = len(undo_log)
            try:
                results.append(apply(value, state))
            except BaseException as error:
                results.append(self.failed(key, value, error, before))
        return results
