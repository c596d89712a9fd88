"""What a caller gives as inputs of a flow, as sources: lists, iterators, paths, sources.

>>> flow = Flow("pairs")
>>> flow.source("left").union(flow.source("right")).sink()
>>> [source.name for source in sources_of(flow, {"right": iter("cd"), "left": ["a"]})]
['left', 'right']
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from time import monotonic

from driftline.engine.errors import DriftlineError, FlowError, MalformedMessage, PayloadError
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY
from driftline.engine.sources import (
    BadRecord,
    LiveSource,
    QueueSource,
    Source,
    open_source,
)
from driftline.engine.wire.codec import pack, travelled

AHEAD_MAX = 24
"""Records of an iterator that are under way at most."""

QUICK_S = 0.002
"""An iterator that takes longer for a record may be waiting for something."""

Input = Iterable[object] | str | Path | Source
"""Records, the path of a file, or a source."""

Inputs = Mapping[str, Input] | Sequence[Input]
"""For each source of a flow its input: by name, or in the order of the sources."""


def sources_of(flow: Flow, inputs: Inputs) -> list[Source | LiveSource]:
    """A source for each of the flow's, in their order. Iterables are not read yet.

    Raises FlowError for what is no input, is missing, or is too many; Unavailable or InputError for
    a file that cannot be opened.
    """
    names = [source.name for source in flow.validate().sources]
    return [_source(name, given) for name, given in zip(names, _ordered(flow, inputs), strict=True)]


def _ordered(flow: Flow, inputs: Inputs) -> list[Input]:
    """The inputs in the order of the flow's sources."""
    names = [source.name for source in flow.sources]
    of_flow = f"flow {flow.name!r} has the source{'s' * (len(names) > 1)} {', '.join(names)}"
    if isinstance(inputs, Mapping):
        unknown = [name for name in inputs if name not in names]
        missing = [name for name in names if name not in inputs]
        if unknown:
            raise FlowError(f"an input for {unknown[0]!r}, which is no source: {of_flow}")
        if missing:
            raise FlowError(f"no input for {', '.join(missing)}: {of_flow}")
        return [inputs[name] for name in names]
    if isinstance(inputs, (str, bytes, Path, Source)) or not isinstance(inputs, Iterable):
        raise FlowError(
            f"inputs are {_kind(inputs)}: give one input for each source, as {{name: input}} or as "
            f"a list of inputs; {of_flow}"
        )
    given = list(inputs)
    if len(given) != len(names):
        records = any(isinstance(each, Mapping) for each in given)
        raise FlowError(
            f"{of_flow}, but {len(given)} inputs were given"
            + ("; a list of records is one input: give [records]" if records else "")
        )
    return given


def _source(name: str, given: Input) -> Source | LiveSource:
    """The source for one input. Raises FlowError."""
    if isinstance(given, str) and "://" in given:
        raise FlowError(
            f"source {name!r}: {given} is an address; records over a network are for the command "
            "`driftline run`"
        )
    if isinstance(given, (str, Path)):
        return _file(name, given)
    if isinstance(given, LiveSource):
        raise FlowError(
            f"source {name!r}: a live source does not end by itself; give an iterator, or send "
            "records one by one with FlowTest"
        )
    if isinstance(given, Source):
        return given
    if isinstance(given, (bytes, bytearray, Mapping)) or not isinstance(given, Iterable):
        raise FlowError(
            f"source {name!r}: {_kind(given)} is no input: give a list or an iterator of records, "
            "the path of a file, or a Source"
        )
    if isinstance(given, AbstractSet):
        raise FlowError(f"source {name!r}: a set has no order that lasts: give a list of records")
    if isinstance(given, Sequence):
        return Records(name, given)
    return Pulled(name, iter(given))


def _file(name: str, path: str | Path) -> Source:
    try:
        return open_source(path)
    except DriftlineError as error:
        if isinstance(path, Path) or Path(path).exists():
            raise
        raise FlowError(
            f"source {name!r}: {error}. A text is the path of a file; records are given as a list "
            "of them"
        ) from None


class Records:
    """The records of a list, which has to stay as it is."""

    def __init__(self, name: str, records: Sequence[object]) -> None:
        self.name = name
        self._records = records

    def read(self, start: int) -> Iterator[tuple[int, object]]:
        """The records from a time on, at the times 1, 2, ... Raises PayloadError."""
        for at in range(max(0, start - 1), len(self._records)):
            record = self._records[at]
            check_record(self.name, at + 1, record)
            yield at + 1, record

    def progress(self) -> tuple[int, int] | None:
        """Unknown: there are no bytes."""
        return None

    def identity(self) -> str:
        """The records' hash; costs encoding them."""
        content = hashlib.sha256()
        for _, record in self.read(1):
            content.update(pack(record))
        return f"{self.name}, {content.hexdigest()[:32]}"


class Pulled(QueueSource):
    """The records of an iterator, each asked for when it may be: 1, 2, ...

    As long as the iterator answers quickly, up to `AHEAD_MAX` records are under way. One that takes
    its time is asked for a record only when all that comes of those before has been delivered.
    Records are kept until nobody can ask for them again.
    """

    def __init__(self, name: str, records: Iterator[object]) -> None:
        super().__init__(name)
        self.delivered: Callable[[], int] = lambda: INFINITY
        """All that comes of records below this time has been delivered."""
        self._rest = records
        self._ahead = 0

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        for record in super().read(start):
            if record is None and self._may_pull():
                self._pull()
            else:
                yield record

    def move_to(self, time: int) -> int:
        return self._next  # the times are the numbers of the records, whatever others have

    def identity(self) -> str:
        return f"an iterator, {secrets.token_hex(8)}"  # nobody can give the same again

    def _may_pull(self) -> bool:
        under_way = self._next - self.delivered()
        if under_way <= 0:
            self._ahead = min(2 * self._ahead, AHEAD_MAX) or 1
        return under_way < self._ahead

    def _pull(self) -> None:
        began = monotonic()
        try:
            record = next(self._rest)
        except StopIteration:
            self.close()
            return
        if monotonic() - began > QUICK_S:
            self._ahead = 0  # which the next time that nothing is under way makes 1
        check_record(self.name, self._next, record)
        self.put(record)


def check_record(source: str, number: int, record: object) -> None:
    """Raises PayloadError for a record that cannot travel."""
    try:
        travelled(record)
    except (PayloadError, MalformedMessage) as error:
        raise PayloadError(f"source {source!r}, record {number}: {error}") from None


def _kind(given: object) -> str:
    name = type(given).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
