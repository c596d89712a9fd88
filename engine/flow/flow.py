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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from driftline.engine.errors import FlowError
from driftline.engine.event_time import UNITS, Duration, EventTime, parse_duration
from driftline.engine.flow.flow_graph import FlowGraph, checked_fields
from driftline.engine.flow.streams import Stream, getter
from driftline.engine.operators.stateless import SourceOperator

T = TypeVar("T")
U = TypeVar("U")


@dataclass(slots=True)
class Flow(FlowGraph):
    """A graph of operators under construction, from its sources to its sinks.

    Args:
        name: Name of the flow, in graphs and errors.
        groups: Number of key groups, and so the largest number of nodes.

    Raises:
        FlowError: `groups` is not an int from 1 to 32768.
    """

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
            fields: Names of the items of the records, if these are tuples.
            event_time: A field, or a function that takes a record: when the event happened, as a
                number, a datetime, or ISO 8601 text. Without a time zone it is in UTC. A record
                without a valid event time counts as a failure. Operators with windows or timers
                need event times.
            unit: Unit of event times that are numbers: "s", "ms" or "us".
            max_delay: Expected disorder: by how much the event time of a record may be smaller than
                that of an earlier record. The watermark is this much behind the largest event time.
            idle_after: How long a live source may have no records before it is idle. An idle source
                does not hold back the watermark of operators that other sources reach, too.
            tick: Interval at which a live source moves its watermark to the current time minus
                `max_delay`, so that timers fire and windows end although no record arrives. Without
                an `event_time`, the event time of a record is then the time of its arrival.

        Returns:
            The stream of records; without `of` they may be of any type.

        Raises:
            FlowError: The name is taken, or another argument is invalid.
        """
        what = f"source {name!r}"
        settings, get_event_time = None, None
        if event_time is not None or tick is not None:
            if unit not in UNITS:
                raise FlowError(f"{what}: the unit is {unit!r}, but must be {', '.join(UNITS)}")
            delay_us = parse_duration(max_delay, f"{what}: max_delay")
            idle_us, tick_us = (
                None if value is None else parse_duration(value, f"{what}: {argument}", least=1)
                for value, argument in ((idle_after, "idle_after"), (tick, "tick"))
            )
            settings = EventTime(unit, delay_us, idle_us, tick_us)
            if event_time is not None:
                names = checked_fields(what, fields)
                get_event_time = getter(event_time, names, f"{what}: event_time={event_time!r}")
        elif idle_after is not None:
            raise FlowError(f"{what}: idle_after is for a source with an event_time or a tick")
        vertex = self.add(
            SourceOperator(), name, (), get_event_time, fields=fields, event_time=settings
        )
        return Stream(self, vertex)

    def union(self, first: Stream[T], *others: Stream[U]) -> Stream[T | U]:
        """Merge several streams; the same as ``first.union(*others)``."""
        return first.union(*others)
