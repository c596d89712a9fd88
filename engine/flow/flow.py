"""The flow: the logical graph that a user builds, checked while it is built.

    flow = Flow("word count")
    (
        flow.source("lines", of=Line)
        .flat_map(lambda line: line["text"].split())
        .key_by(lambda word: word)
        .scan(count, ReducingState("count", operator.add), fields=("word", "count"))
        .sink("counts")
    )

Functions must be deterministic: no clock, no randomness but `Context.random`, no I/O. If the
payloads of a stream are tuples, the stream may name their `fields`: then `key_by` takes a name, and
a sink writes objects instead of arrays. An invalid flow raises a FlowError that names the operator,
as early as possible.

A `Stream[T]` has the type of its elements, and a keyed operator calls its function with the states
that it declares. So a type checker detects a function of the wrong type, and a state that is
missing, superfluous, or of another type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isasyncgenfunction, iscoroutinefunction
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, overload

from driftline.engine.errors import FlowError
from driftline.engine.event_time import LIMIT, UNITS, Duration, EventTime, parse_duration
from driftline.engine.events import event_fields, log
from driftline.engine.flow.windowed_stream import WindowedStream
from driftline.engine.keygroups import GROUPS, GROUPS_MAX
from driftline.engine.operators.context import Context
from driftline.engine.operators.joins import (
    HOW,
    AsOfJoin,
    IntervalJoin,
    Lookup,
    tag_left,
    tag_right,
)
from driftline.engine.operators.keyed_operators import Distinct, DistinctInTime, Process, Scan
from driftline.engine.operators.operator import KeyedOperator, Operator, Vertex
from driftline.engine.operators.registry import OPERATORS
from driftline.engine.operators.stateless import Filter, FlatMap, Map, Sink, SourceOperator, Union
from driftline.engine.operators.steps import Fields, Function
from driftline.engine.operators.timers import TIMERS, TimedContext, Timer, no_outputs
from driftline.engine.operators.user_code import as_line, line_of_caller, variables_of
from driftline.engine.operators.windows import Windows
from driftline.engine.policy import Policy
from driftline.engine.state.managed import State, ttl_of
from driftline.engine.texts import counted

PATH_LENGTH_MAX = 100
"""Largest number of operators on a path from a source to a sink, both included. Each uses some
frames of Python's stack, which must leave room for the calls of user functions."""

On = Any
"""Key of a join: a field, a function, or a pair of them for the two streams."""

K = TypeVar("K")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
Handles = TypeVarTuple("Handles")
"""Types of the states that a function takes, in the order of their declaration."""


@dataclass(slots=True)
class Flow:
    """A graph of operators under construction, from its sources to its sinks.

    Args:
        name: Name of the flow, in graphs and errors.
        groups: Number of key groups, and so the largest number of nodes.

    Raises:
        FlowError: `groups` is not an int from 1 to 32768.
    """

    name: str
    groups: int = GROUPS
    vertices: list[Vertex] = field(default_factory=list)
    """In topological order, as an operator is added after its inputs."""
    line: str = field(default_factory=line_of_caller, init=False, compare=False, repr=False)
    """Line of the user's own code that created the flow."""
    variables: list[tuple[Vertex, object, dict[str, object]]] = field(
        default_factory=list, init=False, compare=False, repr=False
    )
    """(vertex, function, values of the function's variables when the vertex was added) of vertices
    added since the last `validate`."""
    code: Any = field(default=None, init=False, compare=False, repr=False)
    """(number of vertices, digests of their code), see `engine.flow.code`; None until computed."""

    def __post_init__(self) -> None:
        if type(self.groups) is not int or not 1 <= self.groups <= GROUPS_MAX:
            raise FlowError(
                f"flow {self.name!r} cannot have groups={self.groups!r}: give an int from 1 to "
                f"{GROUPS_MAX}{as_line(self.line)}"
            )

    @overload
    def source(
        self,
        name: str,
        *,
        of: type[T],
        fields: Sequence[str] | None = None,
        event_time: Callable[[T], object] | str | int | None = None,
        unit: str = "s",
        max_delay: Duration = 0,
        idle_after: Duration | None = None,
        tick: Duration | None = None,
    ) -> Stream[T]: ...
    @overload
    def source(
        self,
        name: str,
        *,
        fields: Sequence[str] | None = None,
        event_time: Callable[[Any], object] | str | int | None = None,
        unit: str = "s",
        max_delay: Duration = 0,
        idle_after: Duration | None = None,
        tick: Duration | None = None,
    ) -> Stream[Any]: ...
    def source(
        self,
        name: str,
        *,
        of: object = None,
        fields: Sequence[str] | None = None,
        event_time: Callable[[Any], object] | str | int | None = None,
        unit: str = "s",
        max_delay: Duration = 0,
        idle_after: Duration | None = None,
        tick: Duration | None = None,
    ) -> Stream[Any]:
        """Add a source to the flow. Each run connects it to an input, such as a file.

        Args:
            name: Name of the source, in graphs and errors.
            of: Type of its records, for type checkers: str, a TypedDict, tuple[str, int], ...
                It is not checked at run time. Records pass through the wire format: sequences
                arrive as tuples. If mypy does not accept the type here (a union, the alias of a
                tuple), annotate the stream: ``rows: Stream[Row] = flow.source("rows")``.
            fields: Names of the items of its records, if these are tuples.
            event_time: A field, or a function that takes a record: when the event happened, as a
                number, a datetime, or ISO 8601 text; without time zone in UTC. A record without a
                valid event time is a failure. Operators with windows or timers need it.
            unit: Unit of numbers: "s", "ms" or "us".
            max_delay: Expected disorder: by how much the event time of a record may be smaller than
                that of an earlier record. The watermark follows the largest event time by it.
            idle_after: How long a live source may have no records before it is idle, and no longer
                holds back the watermark of operators that other sources reach, too.
            tick: Interval at which a live source moves its watermark to the time of day minus
                `max_delay`, so that timers fire and windows end although no record arrives. Without
                an `event_time`, that of a record is then the time of its arrival.

        Returns:
            The stream of records; without `of` they may be of any type.

        Raises:
            FlowError: The name is taken, or the fields or the event time are invalid.
        """
        what = f"source {name!r}"
        times, function = None, None
        if event_time is not None or tick is not None:
            if unit not in UNITS:
                raise FlowError(f"{what}: the unit is {unit!r}, but must be {', '.join(UNITS)}")
            delay = parse_duration(max_delay, f"{what}: max_delay")
            idle, ticks = (
                None if each is None else parse_duration(each, f"{what}: {name_of}", least=1)
                for each, name_of in ((idle_after, "idle_after"), (tick, "tick"))
            )
            times = EventTime(unit, delay, idle, ticks)
            if event_time is not None:
                names = _fields(what, fields)
                function = _getter(event_time, names, f"{what}: event_time={event_time!r}")
        elif idle_after is not None:
            raise FlowError(f"{what}: idle_after is for a source with an event_time or a tick")
        vertex = self._add(SourceOperator(), name, (), function, fields=fields, event_time=times)
        return Stream(self, vertex)

    def union(self, first: Stream[T], *others: Stream[U]) -> Stream[T | U]:
        """Merge several streams; the same as ``first.union(*others)``."""
        return first.union(*others)

    @property
    def sources(self) -> list[Vertex]:
        """Sources in order of declaration; front i reads source i."""
        return [vertex for vertex in self.vertices if vertex.operator.is_source]

    @property
    def sinks(self) -> list[Vertex]:
        """Sinks in order of declaration."""
        return [vertex for vertex in self.vertices if vertex.operator.is_sink]

    def order_inputs(self, inputs: Mapping[str, T]) -> list[T]:
        """Return inputs, given by source name, in the order of the sources.

        Raises FlowError if a source has no input, or an input has no source.
        """
        names = [source.name for source in self.sources]
        sources = f"flow {self.name!r} has the source{'s' * (len(names) > 1)} {', '.join(names)}"
        if unknown := [name for name in inputs if name not in names]:
            raise FlowError(f"an input for {unknown[0]!r}, which is not a source: {sources}")
        if missing := [name for name in names if name not in inputs]:
            raise FlowError(f"no input for {', '.join(missing)}: {sources}")
        return [inputs[name] for name in names]

    def check_inputs(self, inputs: Sequence[object]) -> None:
        """Raise FlowError unless there is one input for each source."""
        count = len(self.sources)
        if len(inputs) != count:
            names = ", ".join(source.name for source in self.sources)
            raise FlowError(
                f"flow {self.name!r} has {count} sources ({names}): give {count} inputs in this "
                f"order, not {len(inputs)}"
            )

    def check_nodes(self, nodes: int) -> None:
        """Raise FlowError if the flow has fewer key groups than nodes."""
        if not 1 <= nodes <= self.groups:
            raise FlowError(
                f"flow {self.name!r} cannot run on {counted(nodes, 'node')}: it has "
                f"{counted(self.groups, 'key group')}, and each node needs one; give at most "
                f"{counted(self.groups, 'node')}, or make the flow with more groups"
            )

    def check_policy(self, policy: Policy) -> None:
        """Raise FlowError if an operator needs the label order that a policy does not keep."""
        waiting = [vertex for vertex in self.vertices if vertex.on_timer is not None]
        if waiting and not policy.ordered:
            raise FlowError(
                f"{waiting[0].kind} {waiting[0].name!r} of flow {self.name!r} depends on event "
                f"time, which needs label order: run it with policy exactly-once, not {policy.name}"
            )

    def successors(self, number: int) -> list[Vertex]:
        """Return the vertices after a vertex, in the order of edges.

        A union occurs twice if it merges the vertex with itself.
        """
        return [v for v in self.vertices for before in v.inputs if before == number]

    def validate(self) -> Flow:
        """Check the whole flow, and return it.

        Raises:
            FlowError: The flow is empty or has no sink, an operator has no consumer, or too many
                operators are in a row.
        """
        if not self.vertices:
            at = as_line(self.line)
            raise FlowError(f"flow {self.name!r} is empty: begin with flow.source(name){at}")
        if not self.sinks:
            at = as_line(self.vertices[-1].line)
            raise FlowError(f"flow {self.name!r} has no sink: end a stream with .sink(name){at}")
        self._check_event_times()
        for vertex in self.vertices:
            if not vertex.operator.is_sink and not self.successors(vertex.number):
                raise FlowError(
                    f"{vertex.kind} {vertex.name!r} of flow {self.name!r} leads nowhere: "
                    f"end it with .sink(name) or leave it out{as_line(vertex.line)}"
                )
        self._check_length()
        self._warn_of_loops()
        return self

    def fronts_of(self, vertex: Vertex) -> tuple[int, ...]:
        """Return the numbers of the sources that reach a vertex, among all sources."""
        reached = {vertex.number}
        for before in reversed(self.vertices[: vertex.number + 1]):
            if before.number in reached:
                reached.update(before.inputs)
        return tuple(i for i, source in enumerate(self.sources) if source.number in reached)

    def _check_event_times(self) -> None:
        """Raise FlowError if an operator with timers lacks the event time of a source."""
        for vertex in self.vertices:
            if vertex.on_timer is None:
                continue
            for front in self.fronts_of(vertex):
                source = self.sources[front]
                if source.event_time is None:
                    raise FlowError(
                        f"{vertex.kind} {vertex.name!r} of flow {self.name!r} needs event times: "
                        f"give source {source.name!r} its event_time, or a tick"
                        f"{as_line(source.line)}"
                    )

    def _check_length(self) -> None:
        """Raise FlowError if there are too many operators in a row."""
        length: dict[int, int] = {}
        for vertex in self.vertices:
            before = (length[number] for number in vertex.inputs)
            length[vertex.number] = 1 + max(before, default=0)
            if length[vertex.number] > PATH_LENGTH_MAX:
                raise FlowError(
                    f"{vertex.kind} {vertex.name!r} of flow {self.name!r} is operator "
                    f"{PATH_LENGTH_MAX + 1} in a row, and {PATH_LENGTH_MAX} is the limit, with "
                    "source and sink: let one function do the work of several (lambda x: g(f(x))), "
                    f"and give .union all its streams at once{as_line(vertex.line)}"
                )

    def _add(
        self,
        operator: Operator,
        name: str | None,
        inputs: tuple[int, ...],
        function: Function | None = None,
        key: Function | None = None,
        states: tuple[State, ...] = (),
        fields: Sequence[str] | None = None,
        key_line: str = "",
        on_timer: Function | None = None,
        event_time: EventTime | None = None,
    ) -> Vertex:
        number, kind = len(self.vertices), operator.kind
        if name is None:
            name = f"{kind}-{number}"
        if not isinstance(name, str) or not name:
            raise FlowError(f"the name of a {kind} is a text that is not empty, not {name!r}")
        if kinds := [vertex.kind for vertex in self.vertices if vertex.name == name]:
            both = f"a {kinds[0]} named {name!r}, as this {kind} is: give one another name"
            raise FlowError(f"flow {self.name!r} already has {both}")
        if operator.takes_function and not callable(function):
            raise FlowError(f"{kind} {name!r} needs a function, not {function!r}")
        for role, given in (
            ("function", function),
            ("key function", key),
            ("timer function", on_timer),
        ):
            if iscoroutinefunction(given) or isasyncgenfunction(given):
                raise FlowError(
                    f"{kind} {name!r}: its {role} is async, but operators call plain functions: "
                    "leave out async and await"
                )
        names = _fields(f"{kind} {name!r}", fields)
        line = line_of_caller()
        vertex = Vertex(
            *(number, operator, name, inputs, function, key, states, names, line, key_line),
            on_timer=on_timer,
            event_time=event_time,
        )
        self.vertices.append(vertex)
        self.variables += [(vertex, of, variables_of(of)) for of in (function, key, on_timer)]
        return vertex

    def _warn_of_loops(self) -> None:
        """Warn of functions made in a loop that use its variable: all see its last value.

        Criterion: several functions have the same code object, and a variable of one has changed
        since its operator was added.
        """
        made = Counter(getattr(function, "__code__", None) for _, function, _ in self.variables)
        changed: dict[str, list[Vertex]] = {}
        for vertex, function, before in self.variables:
            for name, value in variables_of(function).items() if before else ():
                is_new = name in before and before[name] is not value
                if is_new and made[getattr(function, "__code__", None)] > 1:
                    changed.setdefault(name, []).append(vertex)
        for name, vertices in changed.items():
            log.warning(
                "variable %s has changed since the functions of %s were made, and all of them use "
                "its last value; let each keep its own, as in lambda x, %s=%s: ...%s",
                *(name, ", ".join(vertex.name for vertex in vertices), name, name),
                as_line(vertices[0].line),
                extra=event_fields("loop-variable", variable=name),
            )
        self.variables.clear()


@dataclass(frozen=True, slots=True)
class Stream(Generic[T_co]):
    """Output of an operator. Its methods add the next operator."""

    flow: Flow
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
        for example by a tag (`examples/join.py`). The union has fields if all streams have the
        same. For type checkers all `others` have one type; for three types, call `union` twice.

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
                    f"{_union(name)} joins streams before .key_by, not a {type(other).__name__}"
                )
            if other.flow is not self.flow:
                raise FlowError(f"{_union(name)} joins streams of different flows")
        vertices = [self.vertex, *(stream.vertex for stream in others)]
        inputs = tuple(vertex.number for vertex in vertices)
        same = {vertex.fields for vertex in vertices}
        fields = self.vertex.fields if len(same) == 1 else None
        return Stream(self.flow, self.flow._add(Union(), name, inputs, fields=fields))

    @overload
    def key_by(self, key: Callable[[T_co], K]) -> KeyedStream[K, T_co]: ...
    @overload
    def key_by(self, key: str | int) -> KeyedStream[Any, T_co]: ...
    @overload
    def key_by(self, key: str | int, *more: str | int) -> KeyedStream[tuple[Any, ...], T_co]: ...
    def key_by(
        self, key: Callable[[T_co], object] | str | int, *more: str | int
    ) -> KeyedStream[Any, T_co]:
        """Partition by a key, for `scan`, `process`, `distinct` and `window`.

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
            function: Function = itemgetter(*[_place(part, fields, what) for part in parts])
        else:
            function = _getter(key, fields, what)
        return KeyedStream(self, function, line_of_caller())

    def split(
        self, predicate: Callable[[T_co], object], *, name: str | None = None
    ) -> tuple[Stream[T_co], Stream[T_co]]:
        """Divide the stream in two: the elements for which the predicate is true, and the others.

        Args:
            predicate: Takes an element; it is called twice for each.
            name: Name of the two operators, with " (true)" and " (false)".

        Raises:
            FlowError: `predicate` is not a function, or a name is taken.
        """
        shown = name or f"split-{len(self.flow.vertices)}"
        matching = self.filter(predicate, name=f"{shown} (true)")
        others = self.filter(_negated(predicate), name=f"{shown} (false)")
        return matching, others

    def join(
        self,
        other: Stream[U],
        *,
        on: On,
        within: tuple[Duration, Duration],
        how: str = "inner",
        name: str | None = None,
    ) -> Stream[tuple[Any, Any]]:
        """Join elements of two streams with equal keys and similar event times.

        Args:
            other: The right stream.
            on: The key: a field or a function, for both streams; or a pair of them.
            within: Smallest and largest difference of the event times, right minus left, as in
                ``("-5m", "15m")``. An element waits until the watermark has passed it.
            how: "inner": only pairs; "left", "right", "outer": also elements of the left stream, of
                the right one, or of both, that have no partner, once they cannot have one any more.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            A stream of pairs (left, right); None in place of a missing partner.

        Raises:
            FlowError: An argument is invalid, a source has no event time, or the name is taken.
        """
        if how not in HOW:
            raise FlowError(f"join: how is {how!r}, but must be one of {', '.join(HOW)}")
        try:
            first, last = within
        except (TypeError, ValueError):
            raise FlowError(
                f"join: within is {within!r}: give two durations, as in ('-5m', '15m')"
            ) from None
        earliest = parse_duration(first, "join: the first duration of within", least=-LIMIT)
        latest = parse_duration(last, "join: the second duration of within", least=-LIMIT)
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
        """Join each element with the latest element of another stream as of its event time.

        Args:
            other: The right stream.
            on: The key: a field or a function, for both streams; or a pair of them.
            tolerance: The right element may be earlier by this much; None: by any time.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            A stream of pairs (left, right), one for each element of this stream, once the watermark
            has passed it; right is None if there was no element.

        Raises:
            FlowError: An argument is invalid, a source has no event time, or the name is taken.
        """
        most = None if tolerance is None else parse_duration(tolerance, "as_of: tolerance")
        operator = AsOfJoin(most)
        return self._add_join(other, on, operator, operator.apply, operator.fire, name)

    def lookup(
        self, other: Stream[U], *, on: On, name: str | None = None
    ) -> Stream[tuple[Any, Any]]:
        """Join each element with the latest element of another stream in label order.

        It needs no event times, and does not wait; the latest element of each key is state.

        Args:
            other: The right stream.
            on: The key: a field or a function, for both streams; or a pair of them.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            A stream of pairs (left, right), one for each element of this stream; right is None if
            there was no element.

        Raises:
            FlowError: `on` is invalid, or the name is taken.
        """
        operator = Lookup()
        return self._add_join(other, on, operator, operator.apply, None, name)

    def _add_join(
        self,
        other: Stream[U],
        on: On,
        operator: KeyedOperator,
        function: Function,
        on_timer: Function | None,
        name: str | None,
    ) -> Stream[Any]:
        kind = operator.kind
        if not isinstance(other, Stream) or other.flow is not self.flow:
            raise FlowError(f"{kind} with {other!r:.100}: give a stream of the same flow")
        left_on, right_on = on if isinstance(on, tuple) and len(on) == 2 else (on, on)
        getters = (
            _getter(left_on, self.vertex.fields, f"{kind}(on={on!r})"),
            _getter(right_on, other.vertex.fields, f"{kind}(on={on!r})"),
        )
        shown = name or f"{kind}-{len(self.flow.vertices) + 3}"
        left = self.map(tag_left, name=f"{shown} (left)")
        sides = left.union(other.map(tag_right, name=f"{shown} (right)"), name=f"{shown} (both)")
        keyed = sides.key_by(lambda sided: getters[sided[0]](sided[1]))
        return keyed._add_keyed(operator, shown, None, function, operator.states, on_timer)

    def sink(self, name: str = "output") -> None:
        """Add a sink: the elements of this stream are outputs of the flow.

        Args:
            name: Name of the sink, of its files, and in graphs and errors.

        Raises:
            FlowError: The name is taken.
        """
        self._add_next(Sink(), name, None, self.vertex.fields)

    if not TYPE_CHECKING:  # type checkers report both on an unkeyed stream

        def __getattr__(self, name: str) -> object:
            """Raise FlowError for a keyed operator, as a state needs a key."""
            if name not in _KEYED:
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
        return self.flow._add(operator, name, (self.vertex.number,), function, fields=fields)


@dataclass(frozen=True, slots=True)
class KeyedStream(Generic[K, T]):
    """Stream of T, partitioned by keys K. Its operators have states."""

    stream: Stream[T]
    key: Function
    line: str = field(default="", compare=False, repr=False)
    """Line of the user's own code that called `key_by`."""

    def scan(
        self,
        function: Callable[[T, *Handles], U],
        *states: *Handles,
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
        function: Callable[[Context, T, *Handles], Iterable[U]],
        *states: *Handles,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]: ...
    @overload
    def process(
        self,
        function: Callable[[TimedContext, T, *Handles], Iterable[U]],
        *states: *Handles,
        on_timer: Callable[[TimedContext, Timer, *Handles], Iterable[U]],
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]: ...
    def process(
        self,
        function: Callable[..., Iterable[U]],
        *states: *Handles,
        on_timer: Callable[..., Iterable[U]] | None = None,
        name: str | None = None,
        fields: Sequence[str] | None = None,
    ) -> Stream[U]:
        """Make any number of outputs for each element, in label order per key.

        Arguments, result and errors are those of `scan`, except that the function takes a Context
        before the element, and returns an iterable of outputs, or yields them.

        Args:
            function: Takes a Context, an element and the states of its key.
            states: Declarations of states.
            on_timer: Takes a TimedContext, a Timer that fires and the states of its key, and
                returns an iterable of outputs, or yields them. The function then gets a
                TimedContext, too, with `timers`, `event_time` and `watermark`. All sources of the
                operator need an event time. The operator applies elements at the frontier.
            name: Name of the operator, in graphs and errors; by default its kind and a number.
            fields: Names of the items of the outputs, if these are tuples.
        """
        return self._add_keyed(Process(), name, fields, function, states, on_timer)

    def distinct(self, *, ttl: Duration | None = None, name: str | None = None) -> Stream[T]:
        """Keep the first element of each key in label order, with the fields of the stream.

        The keys seen so far are state. Without `ttl` it is never dropped.

        Args:
            ttl: Keep also later elements of a key whose event times are at least this long after,
                or before, those of all that were kept. All sources of the operator then need an
                event time; an element that is late by more than `ttl` may be kept twice.
            name: Name of the operator, in graphs and errors; by default its kind and a number.

        Returns:
            The stream of these elements.

        Raises:
            FlowError: `ttl` is not a duration, or the name is taken.
        """
        fields = self.stream.vertex.fields
        if ttl is None:
            always = Distinct()
            return self._add_keyed(always, name, fields, always.apply, always.states)
        operator = DistinctInTime(parse_duration(ttl, "ttl of distinct", least=1))
        function, on_timer = operator.apply, operator.fire
        return self._add_keyed(operator, name, fields, function, operator.states, on_timer)

    def window(self, windows: Windows, *, lateness: Duration = 0) -> WindowedStream[K, T]:
        """Divide the elements of each key into windows of event time.

        Args:
            windows: ``Tumbling("1m")``, ``Hopping("10m", every="1m")``, ``Session("30m")``,
                ``Days("Europe/Berlin")``.
            lateness: How long after its end a window waits for late elements before its row leaves.
                The watermark already lags behind by the `max_delay` of the sources.

        Returns:
            The windows; one of their methods adds the operator.

        Raises:
            FlowError: `windows` are none, or `lateness` is not a duration.
        """
        if not isinstance(windows, Windows):
            raise FlowError(f"window({windows!r}): give windows, such as Tumbling('1m')")
        return WindowedStream(self, windows, parse_duration(lateness, "lateness"))

    if not TYPE_CHECKING:  # type checkers report these on a keyed stream

        def __getattr__(self, name: str) -> object:
            """Raise FlowError for a stateless operator: a keyed stream has only keyed ones."""
            if name not in _NOT_KEYED:
                raise AttributeError(f"a keyed stream has no {name!r}")
            raise FlowError(
                f"after .key_by(...) of {self.stream.vertex.name!r} comes {_one_of(_KEYED)}: put "
                f".{name} before .key_by, or after that"
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
        flow, before, kind = self.stream.flow, self.stream.vertex, operator.kind
        shown = name or f"{kind}-{len(flow.vertices)}"
        declared: dict[str, State] = {}
        for state in states:
            if not isinstance(state, State):
                raise FlowError(f"{kind} {shown!r}: {state!r} is not a state declaration")
            if state.name in declared:
                raise FlowError(f"{kind} {shown!r} declares state {state.name!r} twice")
            declared[state.name] = state
        of, given = (before.number,), tuple(declared.values())
        if on_timer is None and any(ttl_of(state) is not None for state in given):
            on_timer = no_outputs
        if on_timer is not None:
            given += (TIMERS,)
        vertex = flow._add(
            *(operator, name, of, function, self.key, given, fields, self.line, on_timer)
        )
        return Stream(flow, vertex)


_KEYED = [*dict.fromkeys(each.kind for each in OPERATORS if hasattr(KeyedStream, each.kind))]
_NOT_KEYED = ["key_by", *(each.kind for each in OPERATORS if hasattr(Stream, each.kind))]


def _one_of(kinds: Sequence[str]) -> str:
    names = [f".{kind}(...)" for kind in kinds]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _negated(predicate: Callable[[Any], object]) -> Callable[[Any], bool]:
    return lambda value: not predicate(value)


def _getter(given: object, fields: Fields, what: str) -> Function:
    """Return the function that gets a value from a payload. Raises FlowError; `what`: for it."""
    return given if callable(given) else itemgetter(_place(given, fields, what))


def _place(given: object, fields: Fields, what: str) -> str | int:
    """Return the key or position of a field in a payload. Raises FlowError; `what`: for it."""
    if isinstance(given, str) and fields is not None:
        if given not in fields:
            raise FlowError(f"{what}: unknown field, the fields are {', '.join(fields)}")
        return fields.index(given)
    if not isinstance(given, (str, int)) or isinstance(given, bool):
        raise FlowError(f"{what}: give a function, a field's name or a position")
    return given


def _union(name: str | None) -> str:
    return f"union {name!r}" if name else "a union"


def _fields(operator: str, fields: Sequence[str] | None) -> Fields:
    if fields is None:
        return None
    if isinstance(fields, str) or not all(isinstance(name, str) for name in fields):
        raise FlowError(f"{operator}: fields must be a sequence of names, not {fields!r}")
    if len(set(fields)) != len(fields):
        raise FlowError(f"{operator}: a name occurs twice in the fields {', '.join(fields)}")
    return tuple(fields)
