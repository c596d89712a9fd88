"""Streams of a flow: their methods add operators.

The elements of a `Stream[T]` have type T. The types of a keyed operator's states must match the
parameters of its function. So a type checker detects a function of the wrong type, and a state that
is missing, superfluous, or of another type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, overload

from driftline.engine.errors import FlowError
from driftline.engine.event_time import LIMIT, Duration, parse_duration
from driftline.engine.flow.flow_graph import FlowGraph
from driftline.engine.keygroups import GROUPS_MAX
from driftline.engine.operators.aggregates import Aggregate, Aggregates, Collect, Field, Reduce
from driftline.engine.operators.context import Context
from driftline.engine.operators.count_windows import CountWindow, CountWindowed
from driftline.engine.operators.hopping import HoppingLate, HoppingWindowed
from driftline.engine.operators.iterate import Again, Iterate, in_rounds
from driftline.engine.operators.joins import (
    HOW,
    AsOfJoin,
    IntervalJoin,
    Lookup,
    broadcast_keys,
    pairs_of_window,
    tag_for_copies,
    tag_for_copy,
    tag_left,
    tag_right,
    with_table,
)
from driftline.engine.operators.keyed_operators import (
    Distinct,
    DistinctInTime,
    Process,
    RunningTop,
    Scan,
)
from driftline.engine.operators.operator import KeyedOperator, Operator, Vertex
from driftline.engine.operators.registry import OPERATORS
from driftline.engine.operators.stateless import Filter, FlatMap, Map, Sink, Union
from driftline.engine.operators.steps import Fields, Function
from driftline.engine.operators.timers import TIMERS, TimedContext, Timer, no_outputs
from driftline.engine.operators.user_code import line_of_caller
from driftline.engine.operators.windowed import RESERVED, Late, Windowed
from driftline.engine.operators.windows import Hopping, Windows
from driftline.engine.state.managed import MapState, State, ttl_of

On = Any
"""Key of a join: a field or a function, or a pair (for the left stream, for the right one)."""

K = TypeVar("K")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
V = TypeVar("V")
StateTypes = TypeVarTuple("StateTypes")
"""Types of the states that a function takes, in the order of their declaration."""


@dataclass(frozen=True, slots=True)
class Stream(Generic[T_co]):
    """Output of an operator. Its methods add the next operator."""

    flow: FlowGraph
    vertex: Vertex

    def map(
        self,
        function: Callable[[T_co], U],
        *,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """Make one output for each element.

        Args:
            function: Takes an element, and returns the output.
            name: Name of the operator, in graphs and errors; by default its kind and a number.
            fields: Names of the items of the outputs, if these are tuples.

        Returns:
            The stream of outputs.

        Raises:
            FlowError: `function` is not a function, the name is taken, or the fields are invalid.
        """
        return Stream(self.flow, self._add_next(Map(), name, function, fields))

    def flat_map(
        self,
        function: Callable[[T_co], Iterable[U]],
        *,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """Make any number of outputs for each element.

        Arguments, result and errors are those of `map`, except that the function returns an
        iterable of outputs, or yields them.
        """
        return Stream(self.flow, self._add_next(FlatMap(), name, function, fields))

    def filter(
        self, predicate: Callable[[T_co], object], *, name: str | None = None
    ) -> Stream[T_co]:
        """Keep the elements for which the predicate is true, with the fields of this stream.

        Args:
            predicate: Takes an element, and returns whether to keep it.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            The stream of these elements.

        Raises:
            FlowError: `predicate` is not a function, or the name is taken.
        """
        return Stream(self.flow, self._add_next(Filter(), name, predicate, self.vertex.fields))

    def union(self, *others: Stream[U], name: str | None = None) -> Stream[T_co | U]:
        """Merge this stream and the others, in label order.

        If the streams have different types, the next function has to distinguish their elements,
        for example by a field of their own. The union has fields if all streams have the same. For
        type checkers all `others` have one type; for three types, call `union` twice.

        Args:
            others: Streams of the same flow.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            The stream of all elements.

        Raises:
            FlowError: A stream belongs to another flow or has a key, or the name is taken.
        """
        for other in others:
            if not isinstance(other, Stream):
                raise FlowError(
                    f"{_union_text(name)} merges streams, not a {type(other).__name__}: put it "
                    "before .key_by"
                )
            if other.flow is not self.flow:
                raise FlowError(f"{_union_text(name)} cannot merge streams of different flows")
        vertices = [self.vertex, *(stream.vertex for stream in others)]
        inputs = tuple(vertex.number for vertex in vertices)
        all_fields = {vertex.fields for vertex in vertices}
        fields = self.vertex.fields if len(all_fields) == 1 else None
        return Stream(self.flow, self.flow.add(Union(), name, inputs, fields=fields))

    @overload
    def key_by(self, key: Callable[[T_co], K]) -> KeyedStream[K, T_co]: ...
    @overload
    def key_by(self, key: str | int) -> KeyedStream[Any, T_co]: ...
    @overload
    def key_by(self, key: str | int, *more: str | int) -> KeyedStream[tuple[Any, ...], T_co]: ...
    def key_by(
        self, key: Callable[[T_co], object] | str | int, *more: str | int
    ) -> KeyedStream[Any, T_co]:
        """Partition the stream by a key. Operators with states need a partitioned stream.

        A key is None, bool, int, float (no NaN), str, bytes or a tuple of these. Keys are the same
        only if type and value are the same: 5, 5.0 and True are three keys.

        Args:
            key: A function from an element to its key, the name of a field (in a stream without
                fields: a key of a dict), or a position in the element.
            more: Further fields or positions; the key is then a tuple.

        Returns:
            The partitioned stream.

        Raises:
            FlowError: `key` is none of these, or the stream has no such field.
        """
        parts, fields = (key, *more), self.vertex.fields
        what = f"key_by({', '.join(map(repr, parts))}) after {self.vertex.name!r}"
        if more:
            function: Function = itemgetter(*[_index_of(part, fields, what) for part in parts])
        else:
            function = getter(key, fields, what)
        return KeyedStream(self, function, line_of_caller())

    def split(
        self, predicate: Callable[[T_co], object], *, name: str | None = None
    ) -> tuple[Stream[T_co], Stream[T_co]]:
        """Divide the stream in two: the elements for which the predicate is true, and the others.

        Args:
            predicate: Takes an element; it is called twice for each.
            name: Name of the two operators, before " (true)" and " (false)".

        Raises:
            FlowError: `predicate` is not a function, or a name is taken.
        """
        base_name = name or f"split-{len(self.flow.vertices)}"
        matching = self.filter(predicate, name=f"{base_name} (true)")
        others = self.filter(_negated(predicate), name=f"{base_name} (false)")
        return matching, others

    def join(
        self,
        other: Stream[U],
        *,
        on: On,
        within: tuple[Duration, Duration] | None = None,
        window: Windows | None = None,
        how: str = "inner",
        name: str | None = None,
    ) -> Stream[tuple[Any, Any]]:
        """Join elements of two streams with equal keys and similar event times.

        Args:
            other: The right stream.
            on: The key: a field or a function, for both streams; or a pair (left, right) of them.
            within: Smallest and largest difference of the event times, right minus left, as in
                ``("-5m", "15m")``. Pairs are emitted at once; an element is stored until the
                watermark has passed all possible partners.
            window: Instead of `within`: elements of the same window are partners, as in
                ``Tumbling("1m")``. Pairs are emitted together, once the window is complete.
            how: "inner": only pairs; "left", "right", "outer": also the elements without a partner
                of the left stream, of the right one, or of both, once none can arrive any more.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            A stream of pairs (left, right); None in place of a missing partner.

        Raises:
            FlowError: An argument is invalid, or the name is taken. If a source lacks event times,
                the error is raised when the flow is loaded or run.
        """
        if how not in HOW:
            raise FlowError(f"join: how is {how!r}, but must be one of {', '.join(HOW)}")
        if (within is None) == (window is None):
            raise FlowError("join: give either within=('-5m', '15m') or window=Tumbling('1m')")
        if window is not None:
            if not isinstance(window, Windows):
                raise FlowError(f"join: window is {window!r}: give windows, such as Tumbling('1m')")
            keyed, join_name = self._both_sides(other, on, "join", name)
            rows = keyed.window(window).collect(name=f"{join_name} (windows)")
            return rows.flat_map(pairs_of_window(HOW[how]), name=join_name)
        try:
            smallest, largest = within  # type: ignore[misc]
        except (TypeError, ValueError):
            raise FlowError(
                f"join: within is {within!r}: give two durations, as in ('-5m', '15m')"
            ) from None
        earliest = parse_duration(smallest, "join: the first duration of within", least=-LIMIT)
        latest = parse_duration(largest, "join: the second duration of within", least=-LIMIT)
        if earliest > latest:
            raise FlowError(f"join: within is {within!r}: the first is larger than the second")
        operator = IntervalJoin(earliest, latest, HOW[how])
        return self._add_join(other, on, operator, operator.apply, operator.fire, name)

    def as_of(
        self,
        other: Stream[U],
        *,
        on: On,
        tolerance: Duration | None = None,
        name: str | None = None,
    ) -> Stream[tuple[Any, Any]]:
        """Join each element with the latest element of another stream that is not later than it.

        "Latest" and "later" refer to event times.

        Args:
            other: The right stream.
            on: The key: a field or a function, for both streams; or a pair (left, right) of them.
            tolerance: How much earlier the right element may be; None: any amount.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            A stream of pairs (left, right), one for each element of this stream, once the watermark
            has passed its event time; right is None if there is no such element.

        Raises:
            FlowError: An argument is invalid, or the name is taken. If a source lacks event times,
                the error is raised when the flow is loaded or run.
        """
        tolerance_us = None if tolerance is None else parse_duration(tolerance, "as_of: tolerance")
        operator = AsOfJoin(tolerance_us)
        return self._add_join(other, on, operator, operator.apply, operator.fire, name)

    def lookup(
        self, other: Stream[U], *, on: On, name: str | None = None
    ) -> Stream[tuple[Any, Any]]:
        """Join each element with the last element of another stream before it in label order.

        The join needs no event times and does not wait. It keeps the last right element of each key
        as state.

        Args:
            other: The right stream.
            on: The key: a field or a function, for both streams; or a pair (left, right) of them.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            A stream of pairs (left, right), one for each element of this stream; right is None if
            no right element of the key came before.

        Raises:
            FlowError: `on` is invalid, or the name is taken.
        """
        operator = Lookup()
        return self._add_join(other, on, operator, operator.apply, None, name)

    def with_broadcast(
        self,
        other: Stream[U],
        function: Callable[[T_co, Mapping[Any, U]], Iterable[V]],
        *,
        on: str | int | Callable[[U], object],
        copies: int = 16,
        name: str | None = None,
    ) -> Stream[V]:
        """Call a function for each element, with a table of the latest rows of another stream.

        The table contains the latest row of each key before the element in label order. The method
        suits small tables, such as rules, that every element needs as a whole.

        Args:
            other: The stream of rows.
            function: Takes an element and the table, a read-only mapping from keys to the latest
                rows, in the order of the keys' encoding. It returns an iterable of outputs.
            on: The key of the rows: a field or a function.
            copies: Number of copies of the table. The nodes share the copies, so at most this many
                nodes do the work.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            The stream of outputs.

        Raises:
            FlowError: An argument is invalid, or the name is taken.
        """
        kind = "with_broadcast"
        self._check_other(other, kind)
        if not callable(function):
            raise FlowError(f"{kind} needs a function, not {function!r}")
        if type(copies) is not int or not 1 <= copies <= GROUPS_MAX:
            raise FlowError(f"{kind}: copies is {copies!r}; give an int from 1 to {GROUPS_MAX}")
        key_of = getter(on, other.vertex.fields, f"{kind}(on={on!r})")
        operator_name = name or f"{kind}-{len(self.flow.vertices) + 3}"
        keys, apply = broadcast_keys(copies), with_table(function)
        left = self.map(tag_for_copy(keys), name=f"{operator_name} (elements)")
        right = other.flat_map(tag_for_copies(keys, key_of), name=f"{operator_name} (rows)")
        sides = left.union(right, name=f"{operator_name} (both)")
        return sides.key_by(1).process(apply, MapState[object, object]("table"), name=operator_name)

    def _add_join(
        self,
        other: Stream[U],
        on: On,
        operator: KeyedOperator,
        function: Function,
        on_timer: Function | None,
        name: str | None,
    ) -> Stream[Any]:
        keyed, join_name = self._both_sides(other, on, operator.kind, name)
        return keyed._add_keyed(operator, join_name, None, function, operator.states, on_timer)

    def _both_sides(
        self, other: Stream[U], on: On, kind: str, name: str | None
    ) -> tuple[KeyedStream[Any, Any], str]:
        """Return (the elements of both streams, partitioned by key; the name of the join).

        The elements are pairs (side, element), see `engine.operators.joins`.
        """
        self._check_other(other, kind)
        left_on, right_on = on if isinstance(on, tuple) and len(on) == 2 else (on, on)
        getters = (
            getter(left_on, self.vertex.fields, f"{kind}(on={on!r})"),
            getter(right_on, other.vertex.fields, f"{kind}(on={on!r})"),
        )
        join_name = name or f"{kind}-{len(self.flow.vertices) + 3}"
        left = self.map(tag_left, name=f"{join_name} (left)")
        sides = left.union(
            other.map(tag_right, name=f"{join_name} (right)"), name=f"{join_name} (both)"
        )
        return sides.key_by(lambda sided: getters[sided[0]](sided[1])), join_name

    def _check_other(self, other: object, kind: str) -> None:
        """Raise FlowError unless `other` is a stream that can be joined with this one."""
        if not isinstance(other, Stream) or other.flow is not self.flow:
            raise FlowError(f"{kind} with {other!r:.100}: give a stream of the same flow")

    def sink(self, name: str = "output") -> None:
        """Add a sink: the elements of this stream become outputs of the flow.

        Args:
            name: Name of the sink in graphs and errors, and of its files.

        Raises:
            FlowError: The name is taken.
        """
        self._add_next(Sink(), name, None, self.vertex.fields)

    if not TYPE_CHECKING:  # type checkers report a keyed method of an unkeyed stream

        def __getattr__(self, name: str) -> object:
            """Raise FlowError for a keyed operator, as a state needs a key."""
            if name not in _KEYED_METHODS:
                raise AttributeError(f"a stream has no {name!r}")
            raise FlowError(
                f"{name} after {self.vertex.name!r} needs a key: put .key_by(...) before it"
            )

    def _add_next(
        self,
        operator: Operator,
        name: str | None,
        function: Function | None,
        fields: Sequence[str] | None,
    ) -> Vertex:
        return self.flow.add(operator, name, (self.vertex.number,), function, fields=fields)


@dataclass(frozen=True, slots=True)
class KeyedStream(Generic[K, T]):
    """Stream of T, partitioned by keys K. Its operators have states."""

    stream: Stream[T]
    key: Function
    line: str = field(default="", compare=False, repr=False)
    """Line of the user's own code that called `key_by`."""

    def scan(
        self,
        function: Callable[[T, *StateTypes], U],
        *states: *StateTypes,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """Make one output for each element, in label order per key.

        Args:
            function: Takes an element and the states of its key, in the order of `states`, and
                returns the output.
            states: Declarations of states, such as ``ValueState[int]("last")``.
            name: Name of the operator, in graphs and errors; by default its kind and a number.
            fields: Names of the items of the outputs, if these are tuples.

        Returns:
            The stream of outputs.

        Raises:
            FlowError: `function` is not a function, a state is not a declaration or is declared
                twice, the name is taken, or the fields are invalid.
        """
        return self._add_keyed(Scan(), name, fields, function, states)

    @overload
    def process(
        self,
        function: Callable[[Context, T, *StateTypes], Iterable[U]],
        *states: *StateTypes,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]: ...
    @overload
    def process(
        self,
        function: Callable[[TimedContext, T, *StateTypes], Iterable[U]],
        *states: *StateTypes,
        on_timer: Callable[[TimedContext, Timer, *StateTypes], Iterable[U]],
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]: ...
    def process(
        self,
        function: Callable[..., Iterable[U]],
        *states: *StateTypes,
        on_timer: Callable[..., Iterable[U]] | None = None,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """Make any number of outputs for each element, in label order per key.

        Result and errors are those of `scan`.

        Args:
            function: Takes a Context, an element and the states of its key, and returns an iterable
                of outputs, or yields them.
            states: Declarations of states.
            on_timer: Takes a TimedContext, a Timer that fires and the states of its key, and
                returns an iterable of outputs, or yields them. `function` then also gets a
                TimedContext, instead of a Context, with `timers`, `event_time` and `watermark`. All
                sources that reach the operator need event times. The operator applies an element
                once all earlier elements have arrived.
            name: Name of the operator, in graphs and errors; by default its kind and a number.
            fields: Names of the items of the outputs, if these are tuples.
        """
        return self._add_keyed(Process(), name, fields, function, states, on_timer)

    def iterate(
        self,
        function: Callable[[Context, T, *StateTypes], Iterable[U | Again[T]]],
        *states: *StateTypes,
        max_rounds: int = 1000,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """Make any number of outputs for each element, and send messages back to the operator.

        This is `process`, except that an output `Again(message)` returns to the operator. The key
        function of `key_by` gives the message its key, and the operator calls the function with the
        message in the next round. All messages of a round come before those of the next one, and
        all rounds of an element before the next element. Other outputs go to the next operator.

        Args:
            function: Takes a Context, an element or a message, and the states of its key.
            states: Declarations of states; without `ttl`.
            max_rounds: Maximum number of rounds. A message after the last one counts as a failure
                of the function.
            name: Name of the operator, in graphs and errors; by default its kind and a number.
            fields: Names of the items of the outputs, if these are tuples.

        Returns:
            The stream of the other outputs.

        Raises:
            FlowError: An argument is invalid, or the name is taken.
        """
        operator, vertex = Iterate(max_rounds), len(self.stream.flow.vertices)
        if not callable(function):
            raise FlowError(f"iterate needs a function, not {function!r}")
        if any(isinstance(state, State) and ttl_of(state) is not None for state in states):
            raise FlowError("iterate: its states cannot have a ttl")
        tagged = in_rounds(function, vertex, max_rounds)
        return self._add_keyed(operator, name, fields, tagged, states)

    def distinct(self, *, ttl: Duration | None = None, name: str | None = None) -> Stream[T]:
        """Keep the first element of each key in label order, with the fields of the stream.

        The keys seen so far are state. Without `ttl`, that state is never dropped.

        Args:
            ttl: An element is a duplicate only if its event time differs by less than this from
                that of a kept element of the key. All sources that reach the operator then need
                event times. An element that is late by more than `ttl` may be kept even if it is a
                duplicate.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            The stream of these elements.

        Raises:
            FlowError: `ttl` is not a duration, or the name is taken.
        """
        fields = self.stream.vertex.fields
        if ttl is None:
            untimed = Distinct()
            return self._add_keyed(untimed, name, fields, untimed.apply, untimed.states)
        operator = DistinctInTime(parse_duration(ttl, "ttl of distinct", least=1))
        function, on_timer = operator.apply, operator.fire
        return self._add_keyed(operator, name, fields, function, operator.states, on_timer)

    def top(self, number: int, *, by: Field, name: str | None = None) -> Stream[dict[str, Any]]:
        """Keep the elements of each key that have the largest values of a field.

        Args:
            number: How many elements to keep. They are the state of the key.
            by: Name or position of the field, or a function of the element.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            A stream of dicts with `key` and `top`, one each time that `top` changes. `top` lists
            the elements with the largest values so far, largest first; ties go to the earlier
            element.

        Raises:
            FlowError: An argument is invalid, or the name is taken.
        """
        operator = RunningTop(number, getter(by, self.stream.vertex.fields, f"top(by={by!r})"))
        return self._add_keyed(operator, name, None, operator.apply, operator.states)

    def window(
        self, windows: Windows | CountWindow, *, lateness: Duration = 0
    ) -> WindowedStream[K, T]:
        """Divide the elements of each key into windows of event time, or of a number of elements.

        Args:
            windows: ``Tumbling("1m")``, ``Hopping("10m", every="1m")``, ``Session("30m")``,
                ``Days("Europe/Berlin")``; or ``CountWindow(100)``.
            lateness: How long after its end a window waits for late elements before its row is
                emitted. The watermark already lags behind by the `max_delay` of the sources.

        Returns:
            The windows; one of their methods adds the operator.

        Raises:
            FlowError: `windows` are no windows, or `lateness` is not a duration.
        """
        if not isinstance(windows, Windows | CountWindow):
            raise FlowError(f"window({windows!r}): give windows, such as Tumbling('1m')")
        wait = parse_duration(lateness, "lateness")
        if wait and isinstance(windows, CountWindow):
            raise FlowError("window(CountWindow(...)) takes no lateness: no element is late")
        return WindowedStream(self, windows, wait)

    if not TYPE_CHECKING:  # type checkers report an unkeyed method of a keyed stream

        def __getattr__(self, name: str) -> object:
            """Raise FlowError for a stateless operator: a keyed stream has only keyed ones."""
            if name not in _UNKEYED_METHODS:
                raise AttributeError(f"a keyed stream has no {name!r}")
            raise FlowError(
                f".key_by(...) after {self.stream.vertex.name!r} needs {_or_list(_KEYED_METHODS)} "
                f"next: put .{name} before .key_by, or after that operator"
            )

    def _add_keyed(
        self,
        operator: KeyedOperator,
        name: str | None,
        fields: Sequence[str] | None,
        function: Function,
        states: tuple[object, ...],
        on_timer: Function | None = None,
    ) -> Stream[Any]:
        flow, input_vertex, kind = self.stream.flow, self.stream.vertex, operator.kind
        operator_name = name or f"{kind}-{len(flow.vertices)}"
        declared: dict[str, State] = {}
        for state in states:
            if not isinstance(state, State):
                raise FlowError(f"{kind} {operator_name!r}: {state!r} is not a state declaration")
            if state.name == TIMERS.name:
                raise FlowError(f"{kind} {operator_name!r}: the name {state.name!r} is reserved")
            if state.name in declared:
                raise FlowError(f"{kind} {operator_name!r} declares state {state.name!r} twice")
            declared[state.name] = state
        inputs, all_states = (input_vertex.number,), tuple(declared.values())
        if on_timer is None and any(ttl_of(state) is not None for state in all_states):
            on_timer = no_outputs
        if on_timer is not None:
            all_states += (TIMERS,)
        vertex = flow.add(
            *(operator, name, inputs, function, self.key, all_states, fields, self.line, on_timer)
        )
        return Stream(flow, vertex)


@dataclass(frozen=True, slots=True)
class WindowedStream(Generic[K, T]):
    """Stream of T, partitioned by keys K and by windows.

    `lateness`: how long windows wait for late elements, in microseconds.
    """

    keyed: KeyedStream[K, T]
    windows: Windows | CountWindow
    lateness: int

    def aggregate(
        self, *, emit: str = "final", name: str | None = None, **aggregates: Aggregate
    ) -> Stream[dict[str, Any]]:
        """Aggregate the elements of each window.

        Args:
            emit: "final": one row for each window, once the watermark has reached its end
                plus `lateness`; "updates": also a row for each element, which shows the window so
                far. Rows then have a field `preliminary`.
            name: Name of the operator, in graphs and errors; by default its kind and a number.
            aggregates: Name in the rows -> ``Count()``, ``Sum("price")``, ...

        Returns:
            A stream of dicts: key, start and end of the window as ISO 8601 text, and the results.
            With a `CountWindow`, `number` of the window (from 1) instead of start and end.

        Raises:
            FlowError: There is no aggregate, an aggregate has a reserved name (key, start, end,
                preliminary; key, number), `emit` is invalid, or the name is taken.
        """
        windows = self.windows
        counts = isinstance(windows, CountWindow)
        if emit not in ("final", "updates")[: 1 if counts else 2]:
            expected = "'final'" if counts else "'final' or 'updates'"
            raise FlowError(f"emit is {emit!r}, but must be {expected}")
        if not aggregates:
            raise FlowError("aggregate() needs aggregates, as in aggregate(count=Count())")
        for column, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise FlowError(
                    f"aggregate({column}={aggregate!r}): give an aggregate, such as Count()"
                )
            if column in (("key", "number") if counts else RESERVED):
                raise FlowError(f"aggregate({column}=...): rows have their own {column!r}")
        named_aggregates = Aggregates(aggregates)
        if isinstance(windows, CountWindow):
            operator = CountWindowed(windows.size, named_aggregates)
            return self.keyed._add_keyed(operator, name, None, operator.apply, operator.states)
        if isinstance(windows, Hopping) and windows.overlap and emit == "final":
            return self._add(HoppingWindowed(windows, self.lateness, named_aggregates), name)
        return self._add(
            Windowed(windows, self.lateness, named_aggregates, emit == "updates"), name
        )

    def reduce(
        self, function: Callable[[T, T], T], *, name: str | None = None
    ) -> Stream[dict[str, Any]]:
        """Combine the elements of each window; rows have key, start, end and `value`.

        Args:
            function: Takes two elements, and returns an element.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Raises:
            FlowError: `function` is not a function, or the name is taken.
        """
        if not callable(function):
            raise FlowError(f"reduce({function!r}): give a function of two elements")
        return self.aggregate(name=name, value=Reduce(function))

    def collect(self, *, name: str | None = None) -> Stream[dict[str, Any]]:
        """Collect the elements of each window; rows have key, start, end and `values`.

        Raises:
            FlowError: The name is taken.
        """
        return self.aggregate(name=name, values=Collect())

    @property
    def late(self) -> Stream[dict[str, Any]]:
        """Stream of the elements that are too late for their windows.

        The elements are dicts with `record`, `event_time`, `watermark`, and `windows` (the windows
        that the element missed). A metric counts them, too. Each access adds an operator.
        """
        windows = self.windows
        if isinstance(windows, CountWindow):
            raise FlowError("windows of a number of elements have no late elements")
        if isinstance(windows, Hopping) and windows.overlap:
            return self._add(HoppingLate(windows, self.lateness, Aggregates({})), None)
        return self._add(Late(windows, self.lateness, Aggregates({})), None)

    if not TYPE_CHECKING:  # type checkers report a method of a stream after `window`

        def __getattr__(self, name: str) -> object:
            """Raise FlowError for an operator of a stream: windows need an aggregate first."""
            if name not in {*_UNKEYED_METHODS, *_KEYED_METHODS}:
                raise AttributeError(f"a windowed stream has no {name!r}")
            raise FlowError(
                f".window(...) after {self.keyed.stream.vertex.name!r} needs "
                f"{_or_list(['aggregate', 'reduce', 'collect'])} next: put .{name} after it"
            )

    def _add(self, operator: Windowed, name: str | None) -> Stream[dict[str, Any]]:
        return self.keyed._add_keyed(
            operator, name, None, operator.apply, operator.states, operator.fire
        )


_KEYED_METHODS = [
    *dict.fromkeys(each.kind for each in OPERATORS if hasattr(KeyedStream, each.kind))
]
_UNKEYED_METHODS = ["key_by", *(each.kind for each in OPERATORS if hasattr(Stream, each.kind))]


def _or_list(kinds: Sequence[str]) -> str:
    names = [f".{kind}(...)" for kind in kinds]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _negated(predicate: Callable[[Any], object]) -> Callable[[Any], bool]:
    return lambda value: not predicate(value)


def getter(selector: object, fields: Fields, what: str) -> Function:
    """Return a function that gets a value from a payload.

    Raises FlowError if there is no such field; `what` names the call in the error.
    """
    return selector if callable(selector) else itemgetter(_index_of(selector, fields, what))


def _index_of(selector: object, fields: Fields, what: str) -> str | int:
    """Return the key or position of a field in a payload. Raises FlowError (see `getter`)."""
    if isinstance(selector, str) and fields is not None:
        if selector not in fields:
            raise FlowError(f"{what}: unknown field, the fields are {', '.join(fields)}")
        return fields.index(selector)
    if not isinstance(selector, (str, int)) or isinstance(selector, bool):
        raise FlowError(f"{what}: give a function, a field's name or a position")
    return selector


def _union_text(name: str | None) -> str:
    return f"union {name!r}" if name else "a union"
