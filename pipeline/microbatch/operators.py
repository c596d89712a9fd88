"""The operators of a flow inside Spark's query: a flat_map, and a scan with a MapState."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from zlib import crc32

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import StructType

from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow, Function
from driftline.engine.state.managed import MapState as DeclaredMap
from driftline.engine.wire.codec import pack, unpack
from driftline.pipeline.microbatch.columns import binary, long

GROUPS = 16
"""Number of groups of keys. Spark groups by them instead of by keys."""

SPREAD = StructType([*long("group"), *binary("key", "element")])
"""The columns of the outputs of a Spread."""


def operators_of(flow: Flow) -> tuple[Spread, Keyed]:
    """The two operators of a flow. Raises FlowError for a flow with other operators."""
    form = [vertex.kind for vertex in flow.vertices]
    if form != ["source", "flat_map", "scan", "sink"]:
        raise FlowError(
            f"flow {flow.name!r} is {', '.join(form)}: "
            "micro-batches take a source, flat_map, scan, sink"
        )
    _, flat_map, scan, _ = flow.vertices
    if len(scan.states) != 1 or not isinstance(scan.states[0], DeclaredMap):
        raise FlowError(f"scan {scan.name!r}: micro-batches take one MapState")
    assert flat_map.function is not None
    assert scan.function is not None
    assert scan.key is not None
    return Spread(flat_map.function, scan.key), Keyed(scan.function)


@dataclass(frozen=True)
class Spread:
    """A flat_map; it gives its outputs with their keys and groups of keys."""

    function: Function
    key: Function

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys, elements = [], []
            for record in batch.column(0).to_pylist():
                made = self.function(unpack(record))
                assert isinstance(made, Iterable)
                for element in made:
                    keys.append(pack(self.key(element)))
                    elements.append(pack(element))
            columns = [
                pa.array([crc32(key) % GROUPS for key in keys], pa.int64()),
                pa.array(keys, pa.binary()),
                pa.array(elements, pa.binary()),
            ]
            yield pa.record_batch(columns, SPREAD.names)


class Keyed(StatefulProcessor):
    """A scan with a MapState; Spark calls it for one group of keys at a time."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.entries = handle.getMapState("entries", binary("slot"), binary("value"))
        self.lengths = handle.getMapState("lengths", binary("key"), long("length"))

    def handleInputRows(
        self, key: object, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        states: dict[bytes, MapInSpark] = {}
        for row in rows:
            state = states.get(row.key)
            if state is None:
                state = states[row.key] = MapInSpark(row.key, self.entries, self.lengths)
            yield Row(output=pack(self.function(unpack(row.element), state)))
        for state in states.values():
            state.keep_length()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class MapInSpark(MutableMapping[object, object]):
    """The MapState of a key, for a user's function. Each access is a round trip to the JVM."""

    def __init__(self, key: bytes, entries: MapState, lengths: MapState) -> None:
        self._key = key
        self._entries = entries
        self._lengths = lengths
        stored = lengths.getValue((key,))
        self._before: int = stored[0] if stored else 0
        self._length = self._before

    def keep_length(self) -> None:
        """Store the number of entries, if it has changed."""
        if self._length != self._before:
            self._lengths.updateValue((self._key,), (self._length,))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[object]:
        """Slow: it reads the slots of all keys of the group."""
        slots = self._entries.keys()
        for (slot,) in slots:
            if slot.startswith(self._key):
                yield unpack(slot[len(self._key) :])

    def __contains__(self, key: object) -> bool:
        return self._has(self._slot(key))

    def __getitem__(self, key: object) -> object:
        value = self._entries.getValue(self._slot(key))
        if value is None:
            raise KeyError(key)
        return unpack(value[0])

    def __setitem__(self, key: object, value: object) -> None:
        slot = self._slot(key)
        if not self._has(slot):
            self._length += 1
        self._entries.updateValue(slot, (pack(value),))

    def __delitem__(self, key: object) -> None:
        slot = self._slot(key)
        if not self._has(slot):
            raise KeyError(key)
        self._entries.removeKey(slot)
        self._length -= 1

    def _slot(self, key: object) -> tuple[bytes]:
        """The slot of an entry. No packed key is a prefix of another, so slots of keys differ."""
        return (self._key + pack(key),)

    def _has(self, slot: tuple[bytes]) -> bool:
        return self._length > 0 and self._entries.containsKey(slot)
