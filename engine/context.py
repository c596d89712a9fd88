"""What a user function of `process` may know besides its element, and how its failure is told."""

import random
import traceback
from dataclasses import dataclass
from types import TracebackType

from engine.codec import pack
from engine.labels import Label

RECORD_SHOWN = 200
"""Characters of a record that an error shows."""


class Context:
    """The element's label and key, and a generator of random numbers that a replay repeats."""

    __slots__ = ("key", "label")

    def __init__(self, label: Label, key: object) -> None:
        self.label = label
        self.key = key

    @property
    def random(self) -> random.Random:
        """A generator seeded by the label: the same numbers in every replay."""
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
    def of(operator: str, key: object, record: object, error: Exception) -> "Failure":
        """Describe an exception as it would be after any replay."""
        return Failure(
            operator,
            repr(key)[:RECORD_SHOWN],
            repr(record)[:RECORD_SHOWN],
            f"{type(error).__name__}: {error}",
            _users_line(error.__traceback__),
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
        "  Mend the function, or run with --on-error dead-letter to set such records aside."
    )


def _users_line(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)
    if len(frames) < 2:
        return "unknown line"
    frame = frames[-1]
    return f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}"
