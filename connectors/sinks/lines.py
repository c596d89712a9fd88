"""The JSON line of an output: the only place that decides how an output is written as text.

    {"t": [time, front, child, ...], "value": ...}

"t" is the label of the output. The value is an object if the sink's stream names its fields and the
payload has as many values as fields; otherwise it is the payload itself, with sequences as arrays.
The consumer of JSON lines, the reference interpreter and a run of the same flow on Spark all write
the same bytes.

    >>> from driftline.engine.flow.flow import Flow
    >>> flow = Flow("counts")
    >>> flow.source("words", fields=("word", "count")).sink()
    >>> JsonLines(flow).format(Item((7, 0), 0, ("мир", 2)))
    '{"t": [7, 0], "value": {"word": "мир", "count": 2}}'

A dead letter contains the element that failed as "record", or the invalid output of a function as
"output". If the wire format or JSON cannot represent this value, or if it is larger than a record
may be, the dead letter contains it as "text" instead. An output that JSON cannot represent becomes
a dead letter, too. So with dead letters, no value ends the run. Whether an output becomes a dead
letter depends only on the output. Therefore outputs, t_last and checksums are the same on every
node and after any replay.

Cost: about 3 microseconds for a small payload.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from driftline.engine.errors import PayloadError
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import Label
from driftline.engine.operators.context import Failure, dead_letter_fields
from driftline.engine.operators.steps import FAILURES, Fields
from driftline.engine.texts import text_of
from driftline.engine.wire.bundles import Item

DEAD_LETTERS = "dead-letters"
"""The folder of dead letters in an output directory, and the name of their sink."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode
_SCALARS = frozenset((str, int, float, bool, type(None)))

LEVELS_MAX = 500
"""Maximum nesting of an output: encoding a deeper one could overflow the stack of a thread."""


class JsonLines:
    """Encoder of the outputs of a flow as JSON lines, without line ends.

    `dead_letters`: whether an output that JSON cannot represent becomes a dead letter; otherwise it
    raises PayloadError. Failures become dead letters in both cases.
    """

    def __init__(self, flow: Flow, dead_letters: bool = False) -> None:
        self.names: dict[int, str] = {FAILURES: DEAD_LETTERS}
        """Number of a sink -> its name."""
        self._dead_letters = dead_letters
        self._fields: dict[int, Fields] = {}
        for number, sink in enumerate(flow.sinks):
            self.names[number] = sink.name
            self._fields[number] = sink.fields

    def encode_item(self, item: Item) -> tuple[Item, str]:
        """Return the item to store, and its line.

        If JSON cannot represent an output, the item to store is a dead letter; without
        `dead_letters`, raise PayloadError instead.
        """
        if item.sink == FAILURES:
            return item, _dead_letter(item)
        try:
            return item, _line(item.label, self._value(item))
        except (TypeError, ValueError, RecursionError) as error:
            name = self.names[item.sink]
            problem = (
                f"sink {name!r} cannot write the output at label {list(item.label)} as JSON: "
                f"{text_of(error)}. Convert the output in a `map` before the sink"
            )
        if not self._dead_letters:
            raise PayloadError(
                f"{problem}, or set such outputs aside: --on-error dead-letter (in Python "
                "dead_letters=True)"
            )
        failure = Failure.from_output(name, None, item.value, problem)
        dead_letter = Item(item.label, FAILURES, failure.payload())
        return dead_letter, _dead_letter(dead_letter)

    def format(self, item: Item) -> str:
        """Return the line of an item. Raises PayloadError as `encode_item` does."""
        return self.encode_item(item)[1]

    def _value(self, item: Item) -> object:
        """Return the payload of an output; as a dict if the sink has a name for each value."""
        value, fields = item.value, self._fields[item.sink]
        # A payload that has not passed the wire format yet may be a list instead of a tuple.
        if fields is not None and isinstance(value, (tuple, list)) and len(value) == len(fields):
            return dict(zip(fields, value, strict=True))
        return value


def _dead_letter(item: Item) -> str:
    with suppress(TypeError, ValueError, RecursionError):
        return _line(item.label, dead_letter_fields(item.value))
    return _line(item.label, dead_letter_fields(item.value, as_text=True))


def _line(label: Label, value: object) -> str:
    """Return the line of a value. Raises TypeError, ValueError or RecursionError if JSON cannot
    represent the value."""
    if type(value) not in _SCALARS:
        _check(value)
    return f'{{"t": {list(label)}, "value": {_encode(value)}}}'


def _check(value: object, levels: int = LEVELS_MAX) -> None:
    """Raise TypeError for a key that is not a string, ValueError for more than `levels` levels.

    The JSON encoder would turn the key 1 into "1" and None into "null", so two keys could become
    one.
    """
    children: Iterable[object]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} of a dict is not a string")
        children = value.values()
    elif isinstance(value, (tuple, list)):
        children = value
    else:
        return
    if levels == 0:
        raise ValueError(f"it is nested more than {LEVELS_MAX} deep")
    for each in children:
        if type(each) not in _SCALARS:
            _check(each, levels - 1)
