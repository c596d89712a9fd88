"""Receivers for live sources, which a thread polls, and for standard input.

A live source belongs to the user: it may block, and its client library may not be thread-safe.
Therefore one thread calls `start`, `poll`, `acknowledge` and `close`. The loop takes polled batches
one by one while the `PolledSource` has room for their records in memory; a full queue blocks the
thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Full, Queue
from time import monotonic

from driftline.connectors.files.formats import MAX_LINE_BYTES, json_rows, text_rows
from driftline.connectors.guarded import CheckedLiveSource
from driftline.connectors.inputs import PipedInput
from driftline.connectors.live import LiveSource, Record
from driftline.connectors.logs.received import PipedSource, PolledSource
from driftline.deploy.roles.intake import RETRY_AFTER_S, Receiver
from driftline.engine.errors import DriftlineError, InputError, Unavailable
from driftline.engine.events import FailureLog, event_fields, log

POLL_S = 0.1
"""Timeout of one `poll` in seconds. The same thread acknowledges, so this also delays
acknowledgements."""

CLOSE_TIMEOUT_S = 10.0
"""Timeout in seconds for the last calls of a source, at the end of a run."""

BATCHES_MAX = 16
"""Maximum number of polled batches that wait until the source has room."""

_Batch = Sequence[Record] | BaseException | None
"""Polled records; the error that ended the source; None: the source has ended."""


class PolledReceiver(Receiver):
    """Receiver of a live source. `begin` starts its thread."""

    def __init__(self, source: PolledSource, live: LiveSource, *, name: str) -> None:
        super().__init__(source, name=name)
        self._source = source
        self._live = CheckedLiveSource(live)
        self._batches: Queue[_Batch] = Queue(BATCHES_MAX)
        self.file, self._batch_signal = os.pipe()
        """Ends of a pipe that contains one byte for each waiting batch."""
        self._stored: dict[str, int] = source.offsets()
        """Partition -> stored offset that is not acknowledged to the source yet.

        Initially all offsets in the input log: an earlier call of the command may have died before
        it acknowledged them.
        """
        self._acknowledge_at = 0.0
        self._acknowledge_failures = FailureLog("source-unavailable")
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def begin(self) -> None:
        """Start polling, unless the source has ended."""
        offsets = self._source.offsets()
        fields = event_fields("input", name=self._source.name, partitions=len(offsets))
        if self._source.closed:
            log.info("%s is not polled: it has ended", self._source.name, extra=fields)
            return
        log.info("polling %s", self._source.name, extra=fields)
        self._thread.start()

    def handle_input(self) -> None:
        """Pass one polled batch to the `PolledSource`.

        Raises InputError for a record that cannot be stored. Raises the error that ended the live
        source, wrapped in an InputError if it is not a DriftlineError.
        """
        os.read(self.file, 1)
        batch = self._batches.get_nowait()
        if isinstance(batch, DriftlineError):
            raise batch
        if isinstance(batch, BaseException):
            text = f"{type(batch).__name__}: {batch}"
            raise InputError(self._source.name, self._source.records, text) from batch
        if batch is None:
            self._source.close()
            log.info("%s has ended", self._source.name, extra=event_fields("input-ended"))
            return
        for partition, offset, value in batch:
            self._source.take(partition, offset, value)

    def on_stored(self, producers: Sequence[str]) -> None:
        # A partition of the live source is a producer of the PolledSource.
        offsets = self._source.offsets()
        with self._lock:
            self._stored.update((partition, offsets[partition]) for partition in producers)

    def close(self) -> None:
        """Stop polling; let the thread acknowledge the stored records and close the source.

        Wait at most `CLOSE_TIMEOUT_S`.
        """
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(timeout=CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            log.warning(
                "%s: a call of the source has not returned for %.0f s; the run stops waiting for "
                "it, and ends",
                *(self._source.name, CLOSE_TIMEOUT_S),
                extra=event_fields("source-not-closed", name=self._source.name),
            )

    # Methods of the polling thread.

    def _run(self) -> None:
        poll_failures = FailureLog("source-unavailable")
        name = self._source.name
        try:
            self._live.start(self._source.offsets())
            ended = False
            while not self._ending.is_set():
                self._acknowledge()
                if ended:  # the last records still need an acknowledgement
                    self._ending.wait(POLL_S)
                    continue
                try:
                    batch = self._live.poll(POLL_S)
                except Unavailable as error:
                    poll_failures.record_failure(
                        monotonic(), f"{name}: {error}; polling again", name=name
                    )
                    self._ending.wait(RETRY_AFTER_S)
                    continue
                poll_failures.record_success(monotonic(), f"{name} can be polled again", name=name)
                ended = batch is None
                if ended or batch:
                    self._hand_over(batch)
            if self._stored:
                self._live.acknowledge_last(self._stored)
        except BaseException as error:
            self._hand_over(error)
        finally:
            self._live.close()

    def _hand_over(self, batch: _Batch) -> None:
        while not self._ending.is_set():
            with suppress(Full):
                self._batches.put(batch, timeout=POLL_S)
                os.write(self._batch_signal, b"\0")
                return

    def _acknowledge(self) -> None:
        now = monotonic()
        if not self._stored or now < self._acknowledge_at:
            return
        with self._lock:
            stored, self._stored = self._stored, {}
        name, failures = self._source.name, self._acknowledge_failures
        try:
            self._live.acknowledge(stored)
        except Unavailable as error:
            failures.record_failure(now, f"{name}: {error}; acknowledging again", name=name)
            self._acknowledge_at = now + RETRY_AFTER_S
            with self._lock:
                self._stored = {**stored, **self._stored}
        else:
            failures.record_success(now, f"{name} can be acknowledged again", name=name)


READ_BYTES = 1 << 16
"""Maximum number of bytes that a turn reads: the capacity of a pipe."""


class StandardInput(Receiver):
    """Receiver of standard input. Raises Unavailable if the process has none."""

    def __init__(
        self,
        source: PipedSource,
        piped: PipedInput,
        *,
        name: str = "standard-input",
        is_stop_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_stop_requested`: returns whether the run was asked to end. If so, the end of the pipe
        does not end the stream: the same Ctrl-C may have ended the program that writes to it."""
        super().__init__(source, name=name)
        self._is_stop_requested = is_stop_requested
        if sys.stdin is None or sys.stdin.closed:
            raise Unavailable("there is no standard input to read")
        self.file = sys.stdin.fileno()
        self._source = source
        self._rows = text_rows if piped.is_text else json_rows
        self._record_format = piped.record_format
        self._partial = b""
        """Beginning of a line whose end has not arrived."""
        self._is_at_start = True
        self._row_number = 0
        self._ended = source.closed

    def announce(self) -> None:
        """Log whether standard input is read, and how many records are skipped."""
        source, logged_records = self._source, self._source.logged_records
        fields = event_fields(
            "input", name=source.name, stored=logged_records, read=not self._ended
        )
        if self._ended:
            log.warning(
                "standard input is not read: an earlier call has read all its %d records. "
                "For a stream that has more records now, give another --output",
                logged_records,
                extra=fields,
            )
        elif logged_records:
            log.info(
                "skipping the first %d records of standard input: they are already stored",
                logged_records,
                extra=fields,
            )
        else:
            log.info("reading standard input", extra=fields)

    def has_room(self) -> bool:
        return not (self._ended or self._is_stop_requested()) and super().has_room()

    def handle_input(self) -> None:
        """Read at most `READ_BYTES`, and process all complete lines.

        Raises Unavailable, InputError, StateMismatch.
        """
        try:
            data = os.read(self.file, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise Unavailable(f"standard input cannot be read: {error.strerror}") from None
        if self._is_stop_requested():
            return
        whole, newline, rest = data.rpartition(b"\n")
        if newline or not data:
            self._take(self._partial + whole + newline)
            self._partial = b""
        if len(self._partial) <= MAX_LINE_BYTES:  # else `_rows` rejects the line, however it ends
            self._partial += rest
        if not data:
            self._ended = True
            self._source.end()
            records = self._source.records
            fields = event_fields("input-ended", name=self._source.name, records=records)
            if records:
                log.info("standard input has ended, after %d records", records, extra=fields)
            else:
                log.warning("standard input is empty: it has ended without a record", extra=fields)

    def _take(self, lines: bytes) -> None:
        # Each call of `_rows` removes a byte order mark from its first line, and skips blank lines.
        # So a blank line in front keeps the first line of a later chunk unchanged.
        for row in self._rows([lines] if self._is_at_start else [b"\n", lines]):
            self._row_number += 1
            for document in self._record_format.documents(self._row_number, row):
                self._source.take(document)
        self._is_at_start = self._is_at_start and not lines
