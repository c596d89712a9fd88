"""Context of a user function in `process`, and failures of user functions."""

import random
import reprlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.keygroups import plain_key
from driftline.engine.labels import Label
from driftline.engine.operators.user_code import line_of, without_folder
from driftline.engine.texts import (
    describe_exception,
    escape_controls,
    format_label,
    reraise_interrupt,
    safe_repr,
    strip_addresses,
    truncate,
)
from driftline.engine.wire.codec import (
    RECORD_BYTES_MAX,
    is_deeper,
    pack,
    pack_payload,
    unpack,
    why_unencodable,
)

RECORD_SHOWN = 200
"""Largest number of characters of a record or key in an error."""

LEVELS_SHOWN = 500
"""A value that is nested deeper is formatted in short form: its `repr` could exceed the stack."""


class _Repr(reprlib.Repr):
    """Repr of values that cannot be encoded: sorts sets, omits addresses of objects."""

    def repr_instance(self, x: object, level: int) -> str:
        return f"<{type(x).__name__}>" if " at 0x" in repr(x) else super().repr_instance(x, level)


_REPR = _Repr()


class Context:
    """Label and key of an element: the first argument of a `process` function."""

    __slots__ = ("key", "label")

    label: Label
    """Position of the element in the total order: the time of its record, the number of its source,
    a number for the event time if the source has event times, then the child numbers on the path
    from the record to the element (see `engine.labels`)."""

    key: Any
    """Key of the element, as decoded from the wire format: a sequence is a tuple."""

    def __init__(self, label: Label, key: object) -> None:
        self.label = label
        self.key = key

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise AttributeError, which says when contexts have timers and event times."""
            hint = ""
            if name in ("at_end", "event_time", "timers", "watermark"):
                hint = ": give `process` an on_timer= function to use timers and event times"
            raise AttributeError(f"the context of this function has no {name!r}{hint}")

    @property
    def random(self) -> random.Random:
        """New random generator, seeded by the label: its numbers are the same in every replay.

        Each access returns a new generator; to draw several numbers, assign it to a variable first.
        """
        return random.Random(pack(self.label))


Parts = tuple[str, str, object, str, str, str]
"""Payload of a failure; its fields are `FAILURE_FIELDS`."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Error of a user function, as an output: like other outputs, it may be retracted."""

    operator: str
    """Name of the operator."""
    key: str
    """Key of the element, as text."""
    error: str
    """Type and text of the exception."""
    line: str
    """Line of the user's own code that raised or called the code that raised; if there is none, the
    line of a library, or the one that added the operator; NO_LINE if unknown; RETURNED if an output
    is invalid."""
    encoded_record: bytes = field(repr=False)
    """The element or the output, encoded, so that no function can change it."""
    text: str = ""
    """Beginning of the element or output as text, if it cannot be encoded or is larger than a
    record may be; else ""."""

    @staticmethod
    def from_exception(
        operator: str, key: object, record: object, error: BaseException, fallback_line: str = ""
    ) -> "Failure":
        """Describe an exception, identically in every replay and wherever the code lies.

        `fallback_line`: the line that added the operator or called `key_by`, used if the traceback
        has no line outside the engine.

        Raises `error` again if it is a KeyboardInterrupt.
        """
        reraise_interrupt(error)
        text = f"{describe_exception(error)}{hint_for(error)}"
        line = without_folder(line_of(error) or fallback_line or NO_LINE)
        return Failure(operator, format_short(plain_key(key)), text, line, *_packed(record))

    @staticmethod
    def from_output(operator: str, key: object, output: object, problem: str) -> "Failure":
        """Describe an invalid output of a function."""
        text = f"PayloadError: {problem}"
        return Failure(operator, format_short(plain_key(key)), text, RETURNED, *_packed(output))

    @staticmethod
    def from_payload(payload: object) -> "Failure":
        """Return the failure with this payload."""
        operator, key, record, error, line, text = parts(payload)
        return Failure(operator, key, error, line, pack_payload((record,)), text)

    @property
    def record(self) -> object:
        """The element or the output, in wire types; None if `text` replaces it."""
        value = unpack(self.encoded_record)
        assert isinstance(value, tuple)
        return value[0]

    def payload(self) -> Parts:
        """Return the failure as the payload of an output."""
        return self.operator, self.key, self.record, self.error, self.line, self.text


NO_LINE = "no line of the function: its argument, or what it returned, has the wrong type"
"""Stands for an unknown line."""

RETURNED = "what it returned"
"""Stands for the line if an output is invalid."""

FAILURE_FIELDS = ("operator", "key", "record", "error", "line", "text")


def parts(payload: object) -> Parts:
    """Check the decoded payload of a failure, and return it with its type."""
    assert isinstance(payload, tuple)
    assert len(payload) == len(FAILURE_FIELDS)
    return payload


def dead_letter_fields(payload: object, *, as_text: bool = False) -> dict[str, object]:
    """Return the fields of a dead letter; `payload`: that of the failure.

    `as_text`: format the element or output as text, even if the failure contains its value.
    """
    operator, key, record, error, line, text = parts(payload)
    name = "output" if line == RETURNED else "record"
    content = {"text": text or format_full(record)} if text or as_text else {name: record}
    return {"operator": operator, "key": key, **content, "error": error, "line": line}


def describe_failure(label: Label, payload: object) -> str:
    """Return the error message for a final failure; `payload`: that of the failure."""
    operator, key, record, error, line, text = parts(payload)
    shown_record, key, error, line = map(
        escape_controls, (text or format_short(record), key, error, line)
    )
    name = "output" if line == RETURNED else "record"
    return (
        f"operator {operator!r} failed at {format_label(label)}, key {key}: {error}\n"
        f"  {name}: {shown_record}\n  at: {line}\n"
        "  Fix the function or the record, or write such elements to the dead letters: --on-error "
        "dead-letter (in Python dead_letters=True)."
    )


def format_short(value: object) -> str:
    """Format a value for an error: short, and identical in every process and replay."""
    return truncate(format_full(value), RECORD_SHOWN)


def format_full(value: object) -> str:
    """Format a value identically in every process and replay.

    The text is complete if the value can be encoded and has at most `LEVELS_SHOWN` nested levels.
    """
    must_shorten = is_deeper(value, LEVELS_SHOWN) or why_unencodable(value)
    return strip_addresses(safe_repr(_REPR.repr if must_shorten else repr, value))


_PACKED_NONE = pack_payload((None,))


def _packed(value: object) -> tuple[bytes, str]:
    """Return (encoded value, ""), or (encoded None, beginning of the value as text) if a failure
    cannot hold the value."""
    try:
        data = pack_payload((value,))
        unpack(data)  # the packer accepts one level more than the unpacker
    except (PayloadError, MalformedMessage):
        return _PACKED_NONE, format_short(value)
    if len(data) > RECORD_BYTES_MAX + 1:
        return _PACKED_NONE, format_short(value)
    return data, ""


_LIST_HINT = "a list arrives as a tuple: convert it with list(x)"
_NAMED_TUPLE_HINT = (
    "a NamedTuple arrives as a plain tuple: use a position, as in x[0], or rebuild the NamedTuple, "
    "as in Name(*x)"
)
_DICT_HINT = (
    "a subclass of dict arrives as a plain dict: use a key, as in x['key'], or rebuild the object, "
    "as in Name(x)"
)


def hint_for(error: BaseException) -> str:
    """Return a hint if a function expected its argument to be of another class; else "".

    An encoded value loses its class. A type checker does not know this: it sees only the type that
    the previous function returned.
    """
    hint = _attribute_hint(error) if type(error) is AttributeError else _item_hint(error)
    return f" ({hint})" if hint else ""


def _attribute_hint(error: AttributeError) -> str:
    if type(error.obj) is tuple:
        return _LIST_HINT if hasattr(list, error.name or "") else _NAMED_TUPLE_HINT
    return _DICT_HINT if type(error.obj) is dict else ""


def _item_hint(error: BaseException) -> str:
    """Return the hint for a list operation on a tuple, which only the error's text reveals."""
    if type(error) is not TypeError or not error.args:
        return ""
    prefixes = "'tuple' object does not support item", "'tuple' object doesn't support item"
    return _LIST_HINT if str(error.args[0]).startswith(prefixes) else ""
