"""The context of a user function in `process`, and the description of a function that failed."""

import random
import reprlib
from dataclasses import dataclass, field
from typing import Any

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.keygroups import plain_key
from driftline.engine.labels import Label
from driftline.engine.operators.users import line_of
from driftline.engine.texts import (
    beginning,
    label_in_words,
    let_through,
    raised,
    shown_by,
    stable,
    visible,
)
from driftline.engine.wire.codec import (
    RECORD_BYTES_MAX,
    is_deeper,
    pack,
    pack_payload,
    unpack,
    why_not,
)

RECORD_SHOWN = 200
"""Characters of a record or key that an error shows."""

LEVELS_SHOWN = 500
"""Levels of a value that its text shows: to show more could need more stack than there is."""


class _Repr(reprlib.Repr):
    """The repr of values that cannot travel: sets sorted, objects without their addresses."""

    def repr_instance(self, x: object, level: int) -> str:
        return f"<{type(x).__name__}>" if " at 0x" in repr(x) else super().repr_instance(x, level)


_REPR = _Repr()


class Context:
    """The label and the key of an element: the first argument of a function of `process`."""

    __slots__ = ("key", "label")

    label: Label
    """The place of the element in the order of all elements: the time of its record, the number of
    its source, then the child numbers on the way from the record to the element."""

    key: Any
    """The key of the element, after the wire format: a sequence is a tuple."""

    def __init__(self, label: Label, key: object) -> None:
        self.label = label
        self.key = key

    @property
    def random(self) -> random.Random:
        """A new random generator, seeded by the label: its numbers are the same in every replay.

        Each access returns a generator at its beginning: for several numbers, assign it first.
        """
        return random.Random(pack(self.label))


Parts = tuple[str, str, object, str, str, str]
"""The payload of a failure; its fields are `FAILURE_FIELDS`."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A user function raised. A failure is an output like any other: it may be undone."""

    operator: str
    """Name of the operator."""
    key: str
    """The key of the element, as text."""
    error: str
    """Type and text of the exception."""
    line: str
    """The line of the user's own code that raised, or that called what raised, or that made the
    operator; RETURNED if an output is wrong."""
    kept: bytes = field(repr=False)
    """The element, or the output, packed: no function can change it any more."""
    text: str = ""
    """How it begins, if it cannot travel, or is larger than a record may be; else nothing."""

    @staticmethod
    def of(
        operator: str, key: object, record: object, error: BaseException, made_at: str = ""
    ) -> "Failure":
        """Describe an exception, in the same words after any replay.

        `made_at`: the line that has made the operator, or its key. It stands in the place of a line
        of a function if the exception has come through none.

        Raises `error` itself if it is a Ctrl-C: that comes from outside.
        """
        let_through(error)
        text = f"{raised(error)}{hint_for(error)}"
        line = line_of(error) or made_at or NO_LINE
        return Failure(operator, shown(plain_key(key)), text, line, *_kept(record))

    @staticmethod
    def of_output(operator: str, key: object, output: object, problem: str) -> "Failure":
        """Describe an output that a function must not make."""
        text = f"PayloadError: {problem}"
        return Failure(operator, shown(plain_key(key)), text, RETURNED, *_kept(output))

    @staticmethod
    def of_payload(payload: object) -> "Failure":
        """The failure with this payload."""
        operator, key, record, error, line, text = parts(payload)
        return Failure(operator, key, error, line, pack_payload((record,)), text)

    @property
    def record(self) -> object:
        """The element, or the output, as it travels; None if it cannot: see `text`."""
        value = unpack(self.kept)
        assert isinstance(value, tuple)
        return value[0]

    def payload(self) -> Parts:
        """The payload of the output."""
        return self.operator, self.key, self.record, self.error, self.line, self.text


NO_LINE = "no line of the function: what it is given, or what it returns, does not fit"
"""Stands in the place of a line if none is known."""

RETURNED = "what it returned"
"""Stands in the place of a line where an output, and not the function, is wrong."""

FAILURE_FIELDS = ("operator", "key", "record", "error", "line", "text")


def parts(payload: object) -> Parts:
    """The payload of a failure, as it has come back from the wire."""
    assert isinstance(payload, tuple)
    assert len(payload) == len(FAILURE_FIELDS)
    return payload


def letter_of(payload: object, *, as_text: bool = False) -> dict[str, object]:
    """What a dead letter says, by name; `payload`: of the failure.

    `as_text`: say the element, or the output, as text; else only if it could not be kept.
    """
    operator, key, record, error, line, text = parts(payload)
    name = "output" if line == RETURNED else "record"
    what = {"text": text or whole(record)} if text or as_text else {name: record}
    return {"operator": operator, "key": key, **what, "error": error, "line": line}


def describe(label: Label, payload: object) -> str:
    """The error message for a failure that has become final; `payload`: of the failure."""
    operator, key, record, error, line, text = parts(payload)
    shown_record, key, error, line = map(visible, (text or shown(record), key, error, line))
    name = "output" if line == RETURNED else "record"
    return (
        f"operator {operator!r} failed at {label_in_words(label)}, key {key}: {error}\n"
        f"  {name}: {shown_record}\n  at: {line}\n"
        "  Mend the function, or set such elements aside: --on-error dead-letter (in Python "
        "dead_letters=True)."
    )


def shown(value: object) -> str:
    """A value as text for an error: short, and the same in every process and replay."""
    return beginning(whole(value), RECORD_SHOWN)


def whole(value: object) -> str:
    """A value as text, the same in every process and replay: all of it, if it can travel."""
    is_short = is_deeper(value, LEVELS_SHOWN) or why_not(value)
    return stable(shown_by(_REPR.repr if is_short else repr, value))


_NOTHING = pack_payload((None,))


def _kept(value: object) -> tuple[bytes, str]:
    """A value packed, and no text; or nothing, and how it begins as text, if it cannot be kept."""
    try:
        data = pack_payload((value,))
        unpack(data)  # the packer accepts one level more than the unpacker
    except (PayloadError, MalformedMessage):
        return _NOTHING, shown(value)
    if len(data) > RECORD_BYTES_MAX + 1:
        return _NOTHING, shown(value)
    return data, ""


_LIST = "a list arrives as a tuple: list(x) is one again"
_NAMED = (
    "a NamedTuple arrives as a plain tuple: take a position of it, as in x[0], or make it again, "
    "as in Name(*x)"
)
_DICT = (
    "a subclass of dict arrives as a plain dict: take a key of it, as in x['key'], or make it "
    "again, as in Name(x)"
)


def hint_for(error: BaseException) -> str:
    """Return what to do where a function does not know its argument; else an empty text.

    Values travel without their class. Type checkers do not see it, as the types of streams are
    those that functions return.
    """
    hint = _of_attribute(error) if type(error) is AttributeError else _of_item(error)
    return f" ({hint})" if hint else ""


def _of_attribute(error: AttributeError) -> str:
    if type(error.obj) is tuple:
        return _LIST if hasattr(list, error.name or "") else _NAMED
    return _DICT if type(error.obj) is dict else ""


def _of_item(error: BaseException) -> str:
    """For what lists can do and tuples cannot: Python says it in no other form than its text."""
    if type(error) is not TypeError or not error.args:
        return ""
    cannot = "'tuple' object does not support item", "'tuple' object doesn't support item"
    return _LIST if str(error.args[0]).startswith(cannot) else ""
