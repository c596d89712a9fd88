"""Exceptions of Driftline. Each text names the error, its place and its remedy.

DriftlineError
|-- FlowError             a flow is invalid, or cannot be loaded or run as requested
|-- InputError            a record cannot be read: names the file and the record
|-- PayloadError          a value cannot be encoded (not a msgpack type, integer too large)
|-- MalformedMessage      bytes are not in the format of Driftline
|-- FunctionFailed        a user function raised: names operator, label, key, record
|-- NotDeterministic      a replay produced other outputs than before
|-- SnapshotDamaged       a snapshot has a wrong checksum or lacks a part
|-- StateMismatch         a directory belongs to another run, flow, version or layout
|-- NotPermitted          a CURVE key or access token is missing, invalid, or not sufficient
|-- SimulationFailed      a simulated run produced other outputs than the reference interpreter
`-- Unavailable           a server, port or file cannot be reached, or is in use

Other packages and modules define further subclasses.
"""

import re

CODE_CHANGE_HINT = "; after a change to the code of an operator, add --accept-changed-code"
"""Suffix of `RESUME_HINT`. Without --accept-changed-code, a run rejects changed code."""

RESUME_HINT = f"The same command resumes, once the cause is fixed{CODE_CHANGE_HINT}"

BAD_RECORD_HINT = (
    "Fix it (blank lines are not counted as records) and run the same command again, or set such "
    "records aside: --on-error dead-letter (in Python dead_letters=True)."
)
"""Advice for a bad record."""

BREAKS_OFF = "The input breaks off here"
"""Part of the text of an InputError for a file that cannot be read to its end."""

BAD_FILE_HINT = "Repair or replace the file and run the same command again"
"""Advice for a file that cannot be read to its end."""


def advice_for(text: str, of_records: str = BAD_RECORD_HINT) -> str:
    """Return advice to append to the text of an InputError; "" if the text contains advice.

    `of_records`: the advice for a bad record.
    """
    return "" if BREAKS_OFF in text else f"\n  {of_records}"


class DriftlineError(Exception):
    """Base of all errors that Driftline raises on purpose; the text is for the user."""


class FlowError(DriftlineError):
    """A flow is invalid, or cannot be loaded or run as requested."""


class InputError(DriftlineError):
    """A record cannot be read.

    Args:
        file: Name of the file.
        record: Number of the record in the file, from 1.
        reason: Why the record cannot be read.
    """

    def __init__(self, file: str, record: int, reason: str) -> None:
        super().__init__(f"{file}, record {record}: {reason}")
        self.file = file
        self.record = record
        self.reason = reason

    @staticmethod
    def from_text(text: str) -> "InputError":
        """Rebuild an InputError from its text. A text without file and record is the reason."""
        match = re.fullmatch(r"(.*?), record ([0-9]+): (.*)", text, re.DOTALL)
        return InputError(match[1], int(match[2]), match[3]) if match else InputError("", 0, text)


class PayloadError(DriftlineError):
    """A value cannot be sent or stored: it does not fit the wire format."""


class MalformedMessage(DriftlineError):
    """Bytes cannot be decoded. Roles count malformed messages, and drop them."""


class FunctionFailed(DriftlineError):
    """A user function raised, and no element that arrives later can retract the failure."""


class NotDeterministic(DriftlineError):
    """A replay produced other outputs than before: a function is not deterministic."""


class SnapshotDamaged(DriftlineError):
    """A snapshot is damaged or incomplete."""


class StateMismatch(DriftlineError):
    """A state or output directory belongs to another run, flow, version or layout."""


class NotPermitted(DriftlineError):
    """A CURVE key or an access token is missing, is invalid, or lacks a permission."""


class Unavailable(DriftlineError):
    """A port, file or server cannot be reached now; a retry may help."""


class InUse(Unavailable):
    """Another process uses a directory or a name."""


class Disconnected(Unavailable):
    """A server cannot be reached. The client logs this itself, and logs when it has reconnected."""


class SimulationFailed(DriftlineError):
    """A simulated run stopped, or produced other outputs than the reference interpreter.

    Args:
        text: What went wrong, and how to repeat the run.
        seed: The seed of the run.
    """

    def __init__(self, text: str, seed: int) -> None:
        super().__init__(text)
        self.seed = seed


def error_of(kind: str, text: str) -> DriftlineError:
    """Rebuild an error that another process sent. `kind`: name of its class; `text`: its text.

    The result has this class if it is a direct subclass of DriftlineError that this process has
    imported, except SimulationFailed. Any other error becomes a DriftlineError.
    """
    if kind == InputError.__name__:
        return InputError.from_text(text)
    classes = {cls.__name__: cls for cls in DriftlineError.__subclasses__()}
    del classes[SimulationFailed.__name__]
    return classes.get(kind, DriftlineError)(text)
