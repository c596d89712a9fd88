"""The exceptions of Driftline. The text of each says what went wrong, where, and what to do.

DriftlineError
|-- FlowError             a flow that cannot run, found when it is built or loaded
|-- InputError            a record that cannot be read: names the file and the record
|-- PayloadError          a value that cannot travel (not a msgpack type, integer too large)
|-- MalformedMessage      bytes that are not what Driftline writes
|-- FunctionFailed        a user function raised: operator, label, key, record
|-- NotDeterministic      a replay gave other outputs than the first run
|-- SnapshotDamaged       a snapshot with a wrong checksum or a missing part
|-- StateMismatch         a directory that belongs to another flow, version or layout
|-- SimulationFailed      a simulated run gave other outputs than the reference interpreter
`-- Unavailable           a server, port or file that is needed cannot be reached
"""

import re


class DriftlineError(Exception):
    """Base of all errors that Driftline raises on purpose; its text is meant for the user."""


class FlowError(DriftlineError):
    """The flow cannot run; the text names the operator."""


class InputError(DriftlineError):
    """A record cannot be read. `file`, `record`: the record's file, and its number from 1."""

    def __init__(self, file: str, record: int, reason: str) -> None:
        super().__init__(f"{file}, record {record}: {reason}")
        self.file = file
        self.record = record
        self.reason = reason

    @staticmethod
    def from_text(text: str) -> "InputError":
        """The error that has this text."""
        found = re.fullmatch(r"(.*?), record ([0-9]+): (.*)", text, re.DOTALL)
        return InputError(found[1], int(found[2]), found[3]) if found else InputError("", 0, text)


class PayloadError(DriftlineError):
    """A value cannot travel and be stored: its type is not one of `engine.wire.codec`."""


class MalformedMessage(DriftlineError):
    """Bytes cannot be decoded. A malformed message is counted and dropped."""


class FunctionFailed(DriftlineError):
    """A user function raised, and the order in which it did was not undone."""


class NotDeterministic(DriftlineError):
    """A replay made other outputs than those that had already left the system."""


class SnapshotDamaged(DriftlineError):
    """A snapshot is damaged or incomplete, so an older one has to be used."""


class StateMismatch(DriftlineError):
    """A state or output directory belongs to another flow, version or layout."""


class Unavailable(DriftlineError):
    """A port, a file or a server that is needed cannot be reached now; trying again may help."""


class SimulationFailed(DriftlineError):
    """A simulated run gave other outputs than the reference interpreter; `seed` repeats it."""

    def __init__(self, text: str, seed: int) -> None:
        super().__init__(text)
        self.seed = seed


def error_of(kind: str, text: str) -> DriftlineError:
    """The error that a process told in a message. `kind`: the name of its class."""
    if kind == InputError.__name__:
        return InputError.from_text(text)
    plain = {cls.__name__: cls for cls in DriftlineError.__subclasses__()}
    del plain[SimulationFailed.__name__]
    return plain.get(kind, DriftlineError)(text)
