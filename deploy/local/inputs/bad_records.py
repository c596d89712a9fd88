"""Files with the bad records that were set aside: one file of JSON lines for each input.

    {"record": 7, "file": "in.jsonl", "reason": "field 'id' is missing", "value": {"text": "..."}}

``value`` is the record, as an object or as its text, so it can be repaired and sent again. A replay
adds no record twice. A front writes a bad record durably before it sends a frame or promise that
covers its time, so before any snapshot with a later time. If a new session reads a record again, it
sets the record aside again only if it is still bad: the user may have repaired it in the input
file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from driftline.deploy.roles.consumer import DeadLetters
from driftline.engine.durable import make_directory, replace_file, sync_directory
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.sources import BadRecord


class BadRecordFile:
    """The bad records of one input.

    Opening the file raises StateMismatch for foreign lines, Unavailable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._dead_letter_log = DeadLetters(str(path))
        self._times: set[int] = set()
        """Times of all records in the file."""
        try:
            if path.exists():
                self._read(path.read_bytes())
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from None
        self._forgotten: set[int] = set()
        """Times of records that `forget` removed."""
        self.new = 0
        """Number of records set aside in this session and in no earlier one."""

    @property
    def count(self) -> int:
        """Number of records set aside so far, in all sessions of the run."""
        return len(self._times)

    def forget(self, since: int) -> None:
        """Remove the records from time `since` on, because they will be read again.

        Raises Unavailable.
        """
        remaining_times = {time for time in self._times if time < since}
        if remaining_times == self._times:
            return
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
            remaining = b"".join(line for line in lines if _time(line) in remaining_times)
            replace_file(self.path, remaining)
        except OSError as error:
            raise Unavailable(f"{self.path}: {error.strerror}") from None
        self._forgotten |= self._times - remaining_times
        self._times = remaining_times

    def count_below(self, time: int) -> int:
        """Return how many records below a time were set aside."""
        return sum(bad_time < time for bad_time in self._times)

    def add(self, records: Sequence[BadRecord]) -> None:
        """Write records durably, except those already in the file. Raises Unavailable.

        Logs the records that no earlier session had set aside.
        """
        new = [record for record in records if record.time not in self._times]
        if not new:
            return
        text = "".join(record.as_line() + "\n" for record in new).encode()
        try:
            is_first = not self.path.exists()
            make_directory(self.path.parent)
            with self.path.open("ab", buffering=0) as file:
                while text:
                    text = text[file.write(text) :]
                os.fdatasync(file.fileno())
            if is_first:
                sync_directory(self.path.parent)
        except OSError as error:
            raise Unavailable(f"{self.path}: {error.strerror}") from None
        self._times.update(record.time for record in new)
        not_seen_before = [record for record in new if record.time not in self._forgotten]
        self.new += len(not_seen_before)
        self._dead_letter_log.add_bad_records(monotonic(), not_seen_before)

    def log_if_due(self, now: float) -> None:
        """Log the latest bad records if a log line is due; `now`: seconds, monotonic."""
        self._dead_letter_log.log_if_due(now)

    def close(self) -> None:
        """Log the bad records that have not been logged yet."""
        self._dead_letter_log.close()

    def _read(self, data: bytes) -> None:
        complete_lines = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(complete_lines.split(b"\n")[:-1], 1):
            try:
                self._times.add(_time(line))
            except (ValueError, TypeError, KeyError, RecursionError):
                raise StateMismatch(
                    f"{self.path}, line {number}: it was not written by Driftline, or it is "
                    "damaged. Restore the file from a copy"
                ) from None
        if len(complete_lines) < len(data):  # a torn last line: its record is read again
            os.truncate(self.path, len(complete_lines))


def _time(line: bytes) -> int:
    """Return the label time of the record in a line.

    Raises ValueError, TypeError, KeyError or RecursionError for a foreign line.
    """
    return int(json.loads(line)["record"])
