"""The one tree of exceptions. Every one says what went wrong, where, and what to do.

DriftlineError
|-- FlowError             a flow that cannot run, found when it is built or loaded
|-- InputError            a record that cannot be read: names the file and the record
|-- PayloadError          a value that cannot travel (not a msgpack type, integer too large)
|-- MalformedMessage      bytes from a socket that are not a message of ours
|-- FunctionFailed        a user function raised: operator, label, key, record
|-- NotDeterministic      a replay gave other outputs than the first run
|-- SnapshotDamaged       a snapshot whose checksum does not fit or that is incomplete
|-- StateMismatch         a directory that belongs to another flow, version or layout
|-- SimulationFailed      a simulated run came to something else than the reference interpreter
`-- Unavailable           a server, port or file that is needed and not to be had
"""

import re


class DriftlineError(Exception):
    """Base of all errors that Driftline raises on purpose; its text is meant for the user."""


class FlowError(DriftlineError):
    """The flow cannot run; the text names the operator."""


class InputError(DriftlineError):
    """A record could not be read. `file` and `record` (its number, from 1) say which."""

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
    """A value is not of the types that can travel and be stored (see `engine.wire.codec`)."""


class MalformedMessage(DriftlineError):
    """Bytes that are not a message of ours; they are counted and dropped, never executed."""


class FunctionFailed(DriftlineError):
    """A user function raised, and not only in an order that was undone."""


class NotDeterministic(DriftlineError):
    """A replay produced other outputs than those that already left the system."""


class SnapshotDamaged(DriftlineError):
    """A snapshot cannot be loaded whole; an older one has to be used."""


class StateMismatch(DriftlineError):
    """A state or output directory belongs to another flow, version or layout."""


class Unavailable(DriftlineError):
    """Something outside that is needed is not to be had: a port, a file, a server."""


class SimulationFailed(DriftlineError):
    """A simulated run came to something else than the reference interpreter. `seed` repeats it."""

    def __init__(self, text: str, seed: int) -> None:
        super().__init__(text)
        self.seed = seed


def error_of(kind: str, text: str) -> DriftlineError:
    """An error that came as a message: the name of its class, and its text."""
    if kind == InputError.__name__:
        return InputError.from_text(text)
    plain = {cls.__name__: cls for cls in DriftlineError.__subclasses__()}
    del plain[SimulationFailed.__name__]
    return plain.get(kind, DriftlineError)(text)
