"""The context of a user function in `process`, and the description of a function that failed."""

import random
import re
import reprlib
from dataclasses import dataclass
from typing import Any

from driftline.engine.flow.users import line_of
from driftline.engine.interrupts import let_through
from driftline.engine.labels import Label
from driftline.engine.visible import visible
from driftline.engine.wire.codec import pack, why_not

RECORD_SHOWN = 200
"""Characters of a record or key that an error shows."""

ERROR_SHOWN = 2000
"""Characters of an exception's text that an error shows."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


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


@dataclass(frozen=True, slots=True)
class Failure:
    """A user function raised. A failure is an output like any other: it may be undone."""

    operator: str
    """Name of the operator."""
    key: str
    """The key of the element, as text."""
    record: str
    """The element, as text."""
    error: str
    """Type and text of the exception."""
    line: str
    """The line of the user's own code that raised, or that called what raised, or that made the
    operator."""

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
        text = f"{type(error).__name__}: {_text_of(error)}"
        line = line_of(error) or made_at or NO_LINE
        return Failure(operator, shown(key), shown(record), text, line)

    @staticmethod
    def of_output(operator: str, key: object, output: object, problem: str) -> "Failure":
        """Describe an output that a function must not make."""
        return Failure(operator, shown(key), shown(output), f"PayloadError: {problem}", RETURNED)

    def payload(self) -> tuple[str, ...]:
        """The payload of the output; its fields are `FAILURE_FIELDS`."""
        return self.operator, self.key, self.record, self.error, self.line


NO_LINE = "no line of the function: what it is given, or what it returns, does not fit"
"""Stands in the place of a line if none is known."""

RETURNED = "what it returned"
"""Stands in the place of a line where an output, and not the function, is wrong."""

FAILURE_FIELDS = ("operator", "key", "record", "error", "line")


def describe(label: Label, payload: tuple[str, ...]) -> str:
    """The error message for a failure that has become final; `payload`: of the failure."""
    operator, *texts = payload
    key, value, error, line = map(visible, texts)
    name = "output" if line == RETURNED else "record"
    return (
        f"operator {operator!r} failed at label {list(label)}, key {key}: {error}\n"
        f"  {name}: {value}\n  at: {line}\n"
        "  Mend the function and go on with --accept-changed-code, or set such elements aside: "
        "--on-error dead-letter (in Python accept_changed_code=True, dead_letters=True)."
    )


def shown(value: object) -> str:
    """A value as text for an error: short, and the same in every process and replay."""
    try:
        text = _REPR.repr(value) if why_not(value) else repr(value)
    except BaseException as error:
        let_through(error)
        text = f"<a {type(value).__name__} whose repr raises {type(error).__name__}>"
    return _stable(text[: 2 * RECORD_SHOWN])[:RECORD_SHOWN]


def _text_of(error: BaseException) -> str:
    if isinstance(error, RecursionError):  # Python's own text depends on where the stack ended
        return "maximum recursion depth exceeded"
    try:
        return _stable(str(error)[:ERROR_SHOWN])
    except BaseException as another:
        let_through(another)
        return f"making its text raises {type(another).__name__}"


def _stable(text: str) -> str:
    """The text without addresses in memory, and with escapes for characters that UTF-8 lacks."""
    return _ADDRESS.sub("", text).encode(errors="backslashreplace").decode()
