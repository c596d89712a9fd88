"""Reads standard input as it arrives, and gives its records to a `PipedSource`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from driftline.connectors.files.formats import MAX_LINE_BYTES, json_rows, text_rows
from driftline.connectors.inputs import Piped
from driftline.connectors.logs.received import PipedSource
from driftline.deploy.roles.intake import Receiver
from driftline.engine.errors import Unavailable
from driftline.engine.events import about, log

READ_BYTES = 1 << 16
"""Bytes that a turn reads at most: as many as a pipe holds."""


class StandardInput(Receiver):
    """The receiver of standard input. Raises Unavailable if the process has none."""

    def __init__(
        self,
        source: PipedSource,
        piped: Piped,
        *,
        name: str = "standard-input",
        asked_to_end: Callable[[], bool] = lambda: False,
    ) -> None:
        """`asked_to_end`: whether the run has been asked to end: the end of the pipe is then the
        end of the program before it, which got the same Ctrl-C, and not the end of the stream."""
        super().__init__(source, name=name)
        self._asked_to_end = asked_to_end
        if sys.stdin is None or sys.stdin.closed:
            raise Unavailable("there is no standard input to read")
        self.file = sys.stdin.fileno()
        self._source = source
        self._rows = text_rows if piped.is_text else json_rows
        self._shape = piped.shape
        self._partial = b""
        """The beginning of a line whose end has not arrived."""
        self._first = True
        self._number = 0
        self._ended = source.closed

    def announce(self) -> None:
        """Tell what is read of standard input, and what is skipped."""
        source, taken = self._source, self._source.taken
        fields = about("input", name=source.name, stored=taken, read=not self._ended)
        if self._ended:
            log.warning(
                "standard input is not read: an earlier run has read it to its end, %d records. "
                "For a stream that has more records now, give another --output",
                taken,
                extra=fields,
            )
        elif taken:
            log.info(
                "the first %d records of standard input are stored already: they are skipped",
                taken,
                extra=fields,
            )
        else:
            log.info("reading standard input", extra=fields)

    def room(self) -> bool:
        return not (self._ended or self._asked_to_end()) and super().room()

    def drain(self) -> None:
        """Read once, and take all complete lines. Raises Unavailable, InputError, StateMismatch."""
        try:
            data = os.read(self.file, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise Unavailable(f"standard input cannot be read: {error.strerror}") from None
        if self._asked_to_end():
            return
        whole, newline, rest = data.rpartition(b"\n")
        if newline or not data:
            self._take(self._partial + whole + newline)
            self._partial = b""
        if len(self._partial) <= MAX_LINE_BYTES:  # a longer line is refused, whatever follows
            self._partial += rest
        if not data:
            self._ended = True
            self._source.end()
            records = self._source.records
            told = about("input-ended", name=self._source.name, records=records)
            if records:
                log.info("standard input has ended, after %d records", records, extra=told)
            else:
                log.warning("standard input is empty: it has ended without a record", extra=told)

    def _take(self, lines: bytes) -> None:
        # A byte order mark may only begin the very first line: other lines get a line before them.
        for row in self._rows([lines] if self._first else [b"\n", lines]):
            self._number += 1
            for document in self._shape.documents(self._number, row):
                self._source.take(document)
        self._first = self._first and not lines
