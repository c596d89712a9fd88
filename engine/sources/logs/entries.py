"""What the entries of an input log are as records.

An entry may be larger, or nested deeper, than a record may be: an earlier version has taken it. It
becomes a bad record when it is read, so that it does not stop every start of the run.
"""

from __future__ import annotations

from driftline.engine.errors import MalformedMessage
from driftline.engine.sources.logs.inputlog import Entry
from driftline.engine.sources.record import cut, refused
from driftline.engine.sources.source import BadRecord
from driftline.engine.wire.codec import unpack
from driftline.engine.wire.limits import why_refused

PIPE = "standard input"
"""The producer of all records of a pipe."""


def record_of(entry: Entry, file: str) -> tuple[int, object] | BadRecord:
    """The record of an entry. `file`: how errors name the log."""
    try:
        payload = unpack(entry.data)
    except MalformedMessage as error:  # nested deeper than can be read
        return BadRecord(entry.time, file, f"its entry in the log cannot be read: {error}", "")
    if entry.producer == PIPE and isinstance(payload, tuple):
        return of_pipe(entry.time, payload)
    if reason := why_refused(payload, len(entry.data)):
        return refused(entry.time, payload, file, reason)
    return entry.time, payload


def of_pipe(time: int, payload: object) -> tuple[int, object] | BadRecord:
    """The record of a payload in the log of a pipe: a tuple stands for one that cannot be read."""
    match payload:
        case (int(number), str(reason), str(text), str(raw)):
            if number != time:
                reason += f" (it is record {number} of this input)"
            return BadRecord(time, PIPE, reason, text, cut(raw))
    return time, payload
