"""Reference interpreter: defines a flow's outputs, in simple code.

It runs in one process and processes one element at a time in label order, without network,
speculation or frames. It encodes and decodes payloads where nodes do so. The tests compare the
engine with the interpreter, so the two share little code: labels, the wire format, the form of
stored values, the contexts and timers that functions receive, and the texts of failures. Users test
their flows with the interpreter:

    >>> from driftline.engine.flow.flow import Flow
    >>> flow = Flow("shout")
    >>> flow.source("words").map(lambda word: word.upper()).sink()
    >>> [item.value for item in run_reference(flow, [["a", "b"]])]
    ['A', 'B']

A depth-first traversal of the graph visits the elements of a root in label order. The labels of two
such elements first differ in a number that an operator or a fan-out has assigned. Operators and
fan-outs assign increasing numbers, in the order of the traversal.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from driftline.engine.errors import (
    FlowError,
    FunctionFailed,
    InputError,
    MalformedMessage,
    PayloadError,
)
from driftline.engine.event_time import (
    END,
    ENDED,
    IDLE,
    NEVER,
    RESUMED,
    TIMER_LIMIT,
    Status,
    event_time_of,
    event_time_of_mark,
    is_fired,
    is_mark,
    rank_of,
    timer_label,
    timestamped,
    to_microseconds,
)
from driftline.engine.event_time import (
    output_label as label_at,
)
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import functions_follow
from driftline.engine.keygroups import pack_key
from driftline.engine.labels import Label, child
from driftline.engine.operators.context import Context, Failure, describe_failure
from driftline.engine.operators.iterate import Tagged, next_round
from driftline.engine.operators.operator import Vertex
from driftline.engine.operators.steps import FAILURES, Fields
from driftline.engine.operators.timers import (
    EndlessTimers,
    TimedContext,
    Timer,
    Timers,
    expiry_timer,
    parse_expiry_timer,
)
from driftline.engine.operators.windowed import drops_late
from driftline.engine.sources.record import validate_record
from driftline.engine.sources.source import BadRecord
from driftline.engine.state.managed import MapState, ttl_of
from driftline.engine.state.plain import Undo, is_stored, plain_state
from driftline.engine.state.values import copy_outputs, is_plain
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import round_trip, unpack


def run_reference(
    flow: Flow,
    inputs: Mapping[str, Iterable[object]] | Iterable[Iterable[object]],
    *,
    dead_letters: bool = False,
) -> Iterator[Item]:
    """Run a flow over records in memory, one element after the other.

    Args:
        flow: The flow to run.
        inputs: An iterable of records for each source: in the order of the sources, or by name.
            The records of each source have the times 1, 2, ...
        dead_letters: Whether to continue after a function raises or returns an invalid output. The
            failure is then an item with sink -1 and the value (operator, key, record, error, line,
            text). If the record cannot be encoded or is too large, `text` replaces it. An invalid
            input record is skipped.

    Returns:
        The outputs in label order, computed lazily.

    Raises:
        FlowError: If the flow cannot run, or there is not one iterable for each source.
        FunctionFailed: Where a function raises or returns an invalid output, without
            `dead_letters`.
        InputError: At an input record that cannot be encoded or is too large, without
            `dead_letters`.
    """
    payload_lists = flow.order_inputs(inputs) if isinstance(inputs, Mapping) else list(inputs)
    for payloads in payload_lists:
        if isinstance(payloads, (str, bytes, Mapping)):
            raise FlowError(
                f"give a list of records for each source, not a {type(payloads).__name__}: "
                "run_reference(flow, [[record, ...]])"
            )
    flow.check_inputs(payload_lists)
    records = [
        _valid_records(source.name, payloads, dead_letters)
        for source, payloads in zip(flow.sources, payload_lists, strict=True)
    ]
    return interpret(flow, records, dead_letters=dead_letters)


def _valid_records(
    source: str, payloads: Iterable[object], dead_letters: bool
) -> Iterator[tuple[int, object]]:
    """Yield (time, record) of the valid records.

    Raises InputError at an invalid one; with `dead_letters`, skips it.
    """
    for time, payload in enumerate(payloads, 1):
        record = validate_record(time, payload, f"source {source!r}")
        if not isinstance(record, BadRecord):
            yield record
        elif not dead_letters:
            raise InputError(record.file, time, record.reason)


def interpret(
    flow: Flow,
    inputs: Iterable[Iterable[tuple[int, object]]],
    *,
    dead_letters: bool = False,
    unended: Container[int] = (),
    late: Counter[str] | None = None,
) -> Iterator[Item]:
    """Run a flow over (time, payload) pairs for each source. Return the outputs in label order.

    A source ends after its last pair, unless its number is in `unended`. `dead_letters`: yield a
    failure as an output of the sink FAILURES, instead of raising FunctionFailed. `late`: counts the
    dropped late elements of each operator. Raises FlowError if the flow is not valid, and
    PayloadError at a payload that cannot be encoded.
    """
    interpreter = _Interpreter(flow.validate(), late)
    roots = heapq.merge(
        *(_roots(front, pairs, front not in unended) for front, pairs in enumerate(inputs)),
        key=lambda root: root[0],
    )
    for label, payload in roots:
        for item in interpreter.enter(label, payload):
            if item.sink == FAILURES and not dead_letters:
                assert isinstance(item.value, tuple)
                raise FunctionFailed(describe_failure(item.label, item.value))
            yield item


def _roots(
    front: int, pairs: Iterable[tuple[int, object]], ends: bool
) -> Iterator[tuple[tuple[int, int], object]]:
    """Yield ((time, front), payload) for each (time, payload), and then the mark END if `ends`."""
    time = 0
    for time, payload in pairs:
        yield (time, front), payload
    if ends:
        yield (time + 1, front), END


class _Value(Struct, frozen=True):
    """An output of a function, a record of a source, or a timer that fires.

    `maker`: name of the operator or source that made it; `key`: key of the call that made it;
    `fields`: the fields that the operator declares.
    """

    value: object
    maker: str
    key: object = None
    fields: Fields = None

    def failure(self, problem: str) -> Failure:
        """Return the failure that replaces this output."""
        return Failure.from_output(self.maker, self.key, self.value, problem)

    def round_trip(self) -> _Value:
        """Return the output as it is after a shuffle. Raises PayloadError if that is impossible."""
        try:
            return replace(self, value=round_trip(self.value))
        except MalformedMessage as error:
            raise PayloadError(str(error)) from None

    def leave_chain(self) -> _Value:
        """Return the output as the next chain or a sink receives it.

        Raises PayloadError if it cannot be encoded, or does not have the declared fields.
        """
        received = self.round_trip()
        value, fields = received.value, self.fields
        if fields is None or (isinstance(value, tuple) and len(value) == len(fields)):
            return received
        problem = f"has {len(value)} values" if isinstance(value, tuple) else "is not a sequence"
        raise PayloadError(
            f"the operator declares {len(fields)} fields, {', '.join(fields)}, but an output "
            f"{problem}"
        )


class _Interpreter:
    def __init__(self, flow: Flow, late: Counter[str] | None = None) -> None:
        self.flow = flow
        self.late = Counter() if late is None else late
        """Operator -> number of late elements that it has dropped."""
        self.undo = Undo()
        self.states: dict[tuple[int, bytes], list[Any]] = {}
        """(vertex, packed key) -> states"""
        self.timer_times: dict[int, list[tuple[int, int, bytes]]] = defaultdict(list)
        """Vertex -> heap of (time, rank of the key, packed key) of its timers. Some of these have
        fired or were cancelled."""
        self.seen_by_functions = {v.number: functions_follow(flow, v) for v in flow.vertices}
        """Vertex -> whether functions of the same chain take its outputs."""
        self.sources = [(NEVER, Status.ACTIVE)] * len(flow.sources)
        """Per source: its watermark and its status at the current root."""
        self.sources_before = self.sources
        """`sources` before the current root."""
        self.messages: list[tuple[Label, _Value]] = []
        """Messages of an iterating operator to itself, for the next round."""

    def enter(self, root: Label, payload: object) -> Iterator[Item]:
        """Yield all items that result from a record or a mark."""
        source = self.flow.sources[root[1]]
        self.sources_before = self.sources[:]
        if not is_mark(payload):
            yield from self.enter_record(source, root, _Value(round_trip(payload), source.name))
        elif source.event_time is not None:
            self.sources[root[1]] = self.source_after(root[1], event_time_of_mark(payload))
        for vertex in self.flow.vertices:
            if vertex.on_timer is not None:
                yield from self.fire(vertex, root)

    def source_after(self, front: int, event_time: int) -> tuple[int, Status]:
        """Return the state of a source after a record or a mark."""
        watermark, status = self.sources[front]
        if event_time == ENDED:
            return watermark, Status.ENDED
        if event_time == IDLE:
            return watermark, Status.IDLE
        if event_time == RESUMED:  # the source must not move a downstream watermark back
            for vertex in self.flow.vertices:
                fronts = self.flow.fronts_of(vertex) if vertex.on_timer else {}
                downstream = self.watermark(vertex, self.sources) if front in fronts else ENDED
                if NEVER < downstream < ENDED:
                    watermark = max(watermark, downstream + fronts[front])
            return watermark, Status.ACTIVE
        settings = self.flow.sources[front].event_time
        assert settings is not None
        return max(watermark, event_time - settings.max_delay), status

    def watermark(self, vertex: Vertex, sources: Sequence[tuple[int, Status]]) -> int:
        """Return the watermark of an operator. `sources`: (watermark, status) of each source."""
        fronts = self.flow.fronts_of(vertex)
        upstream = [
            (max(sources[i][0] - delay, NEVER), sources[i][1]) for i, delay in fronts.items()
        ]
        if all(status == Status.ENDED for _, status in upstream):
            return ENDED
        active = [watermark for watermark, status in upstream if status == Status.ACTIVE]
        return min(active) if active else max(watermark for watermark, _ in upstream)

    def enter_record(self, source: Vertex, root: Label, record: _Value) -> Iterator[Item]:
        """Yield the items that result from a record, before timers fire."""
        if source.event_time is None:
            yield from self.follow(source, root, record)
            return
        try:
            event_time = root[0]
            if source.function is not None:
                event_time = to_microseconds(source.function(record.value), source.event_time.unit)
        except BaseException as error:
            name = f"event_time of {source.name}"
            failure = Failure.from_exception(name, None, record.value, error, source.line)
            yield Item(root, FAILURES, failure.payload())
            return
        self.sources[root[1]] = self.source_after(root[1], event_time)
        yield from self.follow(source, timestamped(root, event_time), record)

    def fire(self, vertex: Vertex, root: Label) -> Iterator[Item]:
        """Yield all items that result from the timers of an operator that are due at a root."""
        watermark = self.watermark(vertex, self.sources)
        fired: Counter[tuple[bytes, int]] = Counter()
        endless: defaultdict[bytes, EndlessTimers] = defaultdict(EndlessTimers)
        while due := self.due(vertex, watermark):
            at, rank, name, packed_key = due
            *states, timers = self.states[vertex.number, packed_key]
            del timers[name]
            self.undo.clear()
            timer = Timer(name, at)
            label = timer_label(root, vertex.number, at, rank, fired[packed_key, at])
            fired[packed_key, at] += 1
            if expiring := parse_expiry_timer(name):
                self.drop(vertex, states, *expiring)
                continue
            key = unpack(packed_key)
            context = self.context(vertex, label, key, timer)
            call = partial(vertex.operator.fire_reference, vertex, context, timer)
            if vertex.operator.user_sets_timers and watermark == ENDED:
                call = partial(_call_unless_endless, endless[packed_key], name, len(timers), call)
            fired_timer = _Value(tuple(timer), vertex.name)
            discard = partial(vertex.operator.discard_reference, timer)
            yield from self.call(vertex, context, fired_timer, call, discard)

    def due(self, vertex: Vertex, watermark: int) -> tuple[int, int, str, bytes] | None:
        """Return (time, rank of the key, name, packed key) of the first timer that is due."""
        times = self.timer_times[vertex.number]
        while times and times[0][0] <= watermark:
            at, rank, packed_key = times[0]
            timers = self.states[vertex.number, packed_key][-1]
            if names := [name for name, time in timers.items() if time == at]:
                return at, rank, min(names), packed_key
            heapq.heappop(times)
        return None

    def context(
        self, vertex: Vertex, label: Label, key: object, timer: Timer | None = None
    ) -> Context:
        """Return the context of a call for an element, or for a timer that fires."""
        if vertex.on_timer is None:
            return Context(label, key)
        timers = self.states_of(vertex, key)[-1]
        if timer is None:
            event_time, least = event_time_of(label), -TIMER_LIMIT
            sources = self.sources_before if is_fired(label) else self.sources
        else:
            event_time, least, sources = timer.at, timer.at + 1, self.sources
        packed_key = pack_key(key)
        times = self.timer_times[vertex.number]

        def add_time(key: object, at: int, change: int) -> None:
            heapq.heappush(times, (at, rank_of(packed_key), packed_key))

        def count_late(time: int) -> None:
            self.late[vertex.name] += drops_late(vertex, self.flow.vertices)

        user_timers = Timers(timers, key, add_time, event_time, least)
        watermark = self.watermark(vertex, sources)
        watermark_before = self.watermark(vertex, self.sources_before)
        return TimedContext(
            label, key, event_time, watermark, watermark_before, user_timers, count_late
        )

    def follow(self, vertex: Vertex, label: Label, output: _Value) -> Iterator[Item]:
        """Yield all items that result from an output of a vertex."""
        if self.seen_by_functions[vertex.number] and not is_plain(output.value):
            # The next function gets its own copy; after a keyed operator, a copy with the types
            # that the value would have after a shuffle.
            if not vertex.is_keyed:
                output = replace(output, value=copy_outputs([output.value])[0])
            else:
                try:
                    output = output.round_trip()
                except PayloadError as error:
                    yield Item(label, FAILURES, output.failure(str(error)).payload())
                    return
        edges = self.flow.successors(vertex.number)
        # A branch may change its argument, so each branch gets its own copy.
        copies = [replace(output, value=copy_outputs([output.value])[0]) for _ in edges[1:]]
        for number, (successor, branch_output) in enumerate(
            zip(edges, [*copies, output], strict=True)
        ):
            branch_label = label if len(edges) == 1 else child(label, number)
            if successor.operator.loops:
                yield from self.iterate(successor, branch_label, branch_output)
            else:
                yield from self.visit(successor, branch_label, branch_output)

    def iterate(self, vertex: Vertex, label: Label, element: _Value) -> Iterator[Item]:
        """Yield all items that result from an element that arrives at an iterating operator."""
        waiting = [(label, element)]
        while waiting:
            label, element = waiting.pop(0)
            # An iterating operator upstream may have messages of its own.
            upstream_messages, self.messages = self.messages, []
            yield from self.visit(vertex, label, element)
            waiting = sorted([*waiting, *self.messages], key=itemgetter(0))
            self.messages = upstream_messages

    def visit(self, vertex: Vertex, label: Label, element: _Value) -> Iterator[Item]:
        """Yield all items that result from an element that arrives at a vertex."""
        if vertex.is_keyed or vertex.operator.is_sink:
            try:
                element = element.leave_chain()
            except PayloadError as error:
                yield Item(label, FAILURES, element.failure(str(error)).payload())
                return
        if vertex.operator.is_sink:
            yield Item(label, self.flow.sinks.index(vertex), element.value)
            return
        try:
            key = None if vertex.key is None else self.key_of(vertex, round_trip(element.value))
        except _Failed as failed:
            yield Item(label, FAILURES, failed.failure.payload())
            return
        context = self.context(vertex, label, key)
        if isinstance(context, TimedContext):
            self.drop_expired(vertex, key, context.event_time)
        call = partial(vertex.operator.apply_reference, vertex, context, element.value)
        yield from self.call(vertex, context, element, call)

    def call(
        self,
        vertex: Vertex,
        context: Context,
        element: _Value,
        function: Callable[[Sequence[object]], list[object]],
        on_failure: Callable[[Sequence[object]], None] = lambda states: None,
    ) -> Iterator[Item]:
        """Call a function with the states of a key. Yield all items that result from its outputs.

        `element`: the element that the function is applied to, or the timer that fires. A failure
        contains it. `on_failure`: called with the states after a failure.
        """
        label, key = context.label, context.key
        try:
            states = self.states_of(vertex, key)
            outputs = function(states if vertex.on_timer is None else states[:-1])
            if isinstance(context, TimedContext):
                self.renew(vertex, states, context.timers)
        except BaseException as error:
            for revert in reversed(self.undo):
                revert()
            on_failure(self.states_of(vertex, key))
            failure = Failure.from_exception(vertex.name, key, element.value, error, vertex.line)
            yield Item(label, FAILURES, failure.payload())
            return
        finally:
            self.undo.clear()
        for number, output in enumerate(outputs):
            output_label = child(label, number) if vertex.operator.emits_many else label
            if vertex.operator.sets_event_times:
                event_time, output = cast(tuple[int, object], output)
                output_label = label_at(label, event_time, number)
            if vertex.operator.loops:
                returns, output = cast(Tagged, output)
                if returns:
                    message = _Value(output, vertex.name)
                    self.messages.append((next_round(output_label, vertex.number), message))
                    continue
            made = _Value(output, vertex.name, key, vertex.fields)
            passes_on = vertex.operator.passes_on
            yield from self.follow(vertex, output_label, element if passes_on else made)

    def renew(self, vertex: Vertex, states: Sequence[object], timers: Timers) -> None:
        """Set or cancel the expiry timers of the values that a call has changed."""
        for declared, state in zip(vertex.states, states, strict=True):
            for changed, item in self.undo.changed[:]:
                if changed is state and (ttl := ttl_of(declared)) is not None:
                    packed_item = pack_key(item) if isinstance(declared, MapState) else b""
                    name = expiry_timer(declared.name, packed_item)
                    if is_stored(state, item):
                        timers.renew(name, ttl)
                    else:
                        timers.cancel(name)

    def drop_expired(self, vertex: Vertex, key: object, event_time: int) -> None:
        """Drop the values of a key whose time to live has passed at an event time."""
        *states, timers = self.states_of(vertex, key)
        for name, at in sorted(timers.items(), key=itemgetter(1)):
            if at <= event_time and (expiring := parse_expiry_timer(name)):
                del timers[name]
                self.drop(vertex, states, *expiring)

    def drop(self, vertex: Vertex, states: Sequence[Any], name: str, item: bytes) -> None:
        """Drop the value of a state, or an item of a map, whose time to live has passed.

        `name`: name of the state; `item`: packed key of the item, or b"".
        """
        for declared, state in zip(vertex.states, states, strict=False):
            if declared.name == name and ttl_of(declared) is not None:
                if item:
                    del state[unpack(item)]
                else:
                    state.clear()
        self.undo.clear()

    def key_of(self, vertex: Vertex, value: object) -> object:
        """Return the key of an element after a shuffle. Raises _Failed."""
        assert vertex.key is not None
        try:
            return unpack(pack_key(vertex.key(value)))
        except BaseException as error:
            name = f"key of {vertex.name}"
            raise _Failed(
                Failure.from_exception(name, None, value, error, vertex.key_line)
            ) from None

    def states_of(self, vertex: Vertex, key: object) -> list[Any]:
        """Return the states of a key. If the operator has timers, the last state contains them."""
        states = self.states.setdefault((vertex.number, pack_key(key)), [])
        if not states:
            states += [plain_state(declared, self.undo) for declared in vertex.states]
        return states


def _call_unless_endless(
    endless: EndlessTimers,
    name: str,
    others: int,
    function: Callable[[Sequence[object]], list[object]],
    states: Sequence[object],
) -> list[object]:
    """Call a timer's function. Raises RuntimeError for an endless timer.

    `others`: number of the other timers that are set for the key (`EndlessTimers.check`).
    """
    endless.check(name, others)
    return function(states)


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure
