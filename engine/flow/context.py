"""What a user function of `process` may know besides its element, and how its failure is told."""

import os
import random
import re
import reprlib
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from driftline.engine.labels import Label
from driftline.engine.wire.codec import pack, why_not

RECORD_SHOWN = 200
"""Characters of a record or key that an error shows."""

ERROR_SHOWN = 2000
"""Characters of an exception's text that an error shows."""

_ENGINE = str(Path(__file__).parents[1]) + os.sep
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class _Repr(reprlib.Repr):
    """How values look that are not of wire types: sets sorted, objects without their addresses."""

    def repr_instance(self, x: object, level: int) -> str:
        return f"<{type(x).__name__}>" if " at 0x" in repr(x) else super().repr_instance(x, level)


_REPR = _Repr()


class Context:
    """What a function of `process` is told besides its element and its states."""

    __slots__ = ("key", "label")

    label: Label
    """The element's place in the order of all: the time of its record, the number of its source,
    then the child numbers on the way from the record to the element."""

    key: Any
    """The element's key, as it arrives: a sequence is a tuple."""

    def __init__(self, label: Label, key: object) -> None:
        self.label = label
        self.key = key

    @property
    def random(self) -> random.Random:
        """A new generator, seeded by the label: it gives the same numbers in every replay.

        Each access gives a generator that begins anew: keep it, if you need several numbers.
        """
        return random.Random(pack(self.label))


@dataclass(frozen=True, slots=True)
class Failure:
    """A user function raised: an output like any other, undone if its order was not final."""

    operator: str
    key: str
    record: str
    error: str
    line: str

    @staticmethod
    def of(operator: str, key: object, record: object, error: BaseException) -> "Failure":
        """Describe an exception as it would be after any replay.

        Also one that would end the process, as `sys.exit()`; but for an interruption from outside,
        which is raised again.
        """
        if isinstance(error, KeyboardInterrupt):
            raise error
        told = f"{type(error).__name__}: {_text_of(error)}"
        return Failure(operator, shown(key), shown(record), told, _users_line(error.__traceback__))

    @staticmethod
    def of_output(operator: str, key: object, output: object, problem: str) -> "Failure":
        """Describe an output that a function must not make."""
        return Failure(
            operator, shown(key), shown(output), f"PayloadError: {problem}", "what it returned"
        )

    def payload(self) -> tuple[str, ...]:
        """As it travels: `FAILURE_FIELDS` names the parts."""
        return self.operator, self.key, self.record, self.error, self.line


FAILURE_FIELDS = ("operator", "key", "record", "error", "line")


def describe(label: Label, payload: tuple[str, ...]) -> str:
    """The error message for a failure that has become final."""
    operator, key, record, error, line = payload
    return (
        f"operator {operator!r} failed at label {list(label)}, key {key}: {error}\n"
        f"  record: {record}\n  at: {line}\n"
        "  Mend the function, or set such records aside: --on-error dead-letter, in Python "
        "dead_letters=True."
    )


def shown(value: object) -> str:
    """How a value looks in an error: short, and the same in every process and replay."""
    try:
        text = _REPR.repr(value) if why_not(value) else repr(value)
    except Exception as error:
        text = f"<a {type(value).__name__} whose repr raises {type(error).__name__}>"
    return _stable(text[: 2 * RECORD_SHOWN])[:RECORD_SHOWN]


def _text_of(error: BaseException) -> str:
    try:
        return _stable(str(error)[:ERROR_SHOWN])
    except (Exception, SystemExit) as another:
        return f"its text cannot be had: {type(another).__name__}"


def _stable(text: str) -> str:
    """Without addresses in memory, and without what UTF-8 does not have."""
    return _ADDRESS.sub("", text).encode(errors="backslashreplace").decode()


def _users_line(trace: TracebackType | None) -> str:
    """The innermost line that is not the engine's."""
    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_ENGINE)]
    if not frames:
        return "no line of the function: it could not be called with this record"
    frame = frames[-1]
    return f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}"
