"""The producer: sends records to a front and tracks which of them are durably stored.

A flow receives each record exactly once, even if the network, the front or the producer fails. For
this, a program has to continue after the last acknowledged record whenever it starts:

    with Producer("tcp://front:5555", "orders") as producer:
        for order in orders[producer.acknowledged :]:
            producer.send(order)

At its end, the block waits until all records are acknowledged; if that fails, it raises the errors
of `flush`. The front counts the records of each producer id: keep the id across restarts, and never
let two processes send with the same id at a time.

The producer resends lost records only within `send`, `flush` and `end`. Call `flush` before a
longer pause.

Memory: at most `window` records and `window_bytes` bytes wait for their acknowledgement, plus the
record that is being sent. ZeroMQ's queue refers to the same bytes and copies only small records.

`deploy.roles.intake` describes the protocol. The timeouts count from the front's last sign of life:
an acknowledgement, or the repeated ACK with which the front reports back-pressure. A SYNC counts
only if it acknowledges further records; otherwise the producer would resend forever records that
are lost each time.

The front answers a request (HELLO, END) after all records that were sent before the request. Until
the answer arrives, the producer sends no record. The reason: after a SYNC it sends all records
again that the SYNC does not acknowledge, so a record that was still under way would be sent twice.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from pathlib import Path
from time import monotonic, time_ns
from types import TracebackType
from typing import Self

import zmq

from driftline.connectors.logs.inputlog import PRODUCER_BYTES_MAX
from driftline.deploy.roles.intake import MAGIC, IntakeKind, IntakeReply, decode_answer
from driftline.deploy.runtime.sockets.keys import own_key
from driftline.deploy.runtime.sockets.monitor import HandshakeMonitor, resolution_error
from driftline.deploy.runtime.sockets.transport import become_client
from driftline.engine.errors import (
    DriftlineError,
    MalformedMessage,
    PayloadError,
    StateMismatch,
    Unavailable,
)
from driftline.engine.wire.addresses import Address
from driftline.engine.wire.codec import pack, why_invalid_record

WINDOW = 1000
"""Default limit of unacknowledged records."""

WINDOW_BYTES = 1 << 26
"""Default limit of unacknowledged bytes."""

COPIED_BYTES = 1 << 12
"""ZeroMQ copies records below this size, which costs less than a reference."""

TIMEOUT_S = 30.0
"""Default of `timeout_s`, in seconds."""

REQUEST_INTERVAL_S = 0.3
"""Seconds of silence after which the producer requests the last acknowledged number."""

REQUEST_INTERVAL_MAX_S = 5.0
"""The interval between requests doubles up to this (seconds), as the front may be busy."""

RECONNECT_MS, RECONNECT_MS_MAX = 10, 200
"""First and longest pause between attempts to reconnect: a front restarts soon."""

HEARTBEAT_MS, DEAD_AFTER_MS = 1000, 10_000
"""Interval of heartbeats; timeout for a peer that vanished without closing the connection."""


class Producer:
    """Connection to a front for one sequence of records. A context manager.

    `address`: where `driftline run --input tcp://...` listens; `producer_id`: identifies this
    sequence of records across restarts, at most 255 bytes; `window`, `window_bytes`: limits of
    unacknowledged records and bytes; a single record may exceed the latter; `timeout_s`: seconds
    that the front may give no sign of life. The front of a slow flow gives one every second, so the
    producer keeps waiting. `keys`: the key of this producer, a file or its directory; the front
    needs `--keys`, too.

    Raises Unavailable if the front gives no sign of life for `timeout_s` or refuses the producer
    (the text says why), or if `address` is not an address; ValueError for an id that is empty or
    too long; NotPermitted if the key cannot be used or is refused.
    """

    def __init__(
        self,
        address: str,
        producer_id: str,
        *,
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
        timeout_s: float = TIMEOUT_S,
        keys: str | Path | None = None,
    ) -> None:
        if not 0 < len(producer_id.encode()) <= PRODUCER_BYTES_MAX:
            raise ValueError(f"a producer's id has 1 to {PRODUCER_BYTES_MAX} bytes")
        self.address = address
        self.id = producer_id
        self.window = window
        self.window_bytes = window_bytes
        self.timeout_s = timeout_s
        self.acknowledged = 0
        """The front has durably stored the records 1 to `acknowledged`."""
        self.sequence = 0
        """The number of the last record passed to `send`."""
        self._session = time_ns()
        """Larger than the sessions of earlier processes with the same id."""
        self._unacknowledged: dict[int, bytes] = {}
        self._bytes = 0
        """Bytes of the unacknowledged records."""
        self._sent = 0
        """Number of the last record sent. A SYNC sets it back, so that lost records are resent."""
        self.below = 0
        """All records up to `acknowledged` have label times below this."""
        self.ended = False
        """Whether the front accepts no more records: this producer or the stream has ended."""
        self._is_synced = False
        """Whether the first SYNC has arrived."""
        self._is_ending = False
        """Whether requests are END instead of HELLO."""
        self._is_request_due = False
        self._awaits_sync = False
        """Whether a request was sent and its answer has not arrived."""
        self._request_at = 0.0
        """When the next request is due (seconds, monotonic)."""
        self._request_interval_s = REQUEST_INTERVAL_S
        self._sign_at = 0.0
        """When the front last gave a sign of life, or the current wait began if that was later
        (seconds, monotonic)."""
        key = None if keys is None else own_key(Path(keys), producer=True)
        server = Address(address) if key is None else key.server_at(address)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.copy_threshold = COPIED_BYTES
        # ZeroMQ drops its queue when a connection breaks: records wait in `_unacknowledged`.
        self._socket.set(zmq.SNDHWM, window)
        self._socket.set(zmq.RCVHWM, 0)  # else heartbeats can abort the process, see `IntakeSocket`
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, DEAD_AFTER_MS)
        if key is not None and server.public_key:
            become_client(self._socket, key, server.public_key)
        key_name = "" if key is None else key.name
        self._endpoint = server.endpoint
        self._refusals = HandshakeMonitor(self._socket, server.endpoint, key_name)
        try:
            self._socket.connect(server.endpoint)
            self._wait(lambda: self._is_synced, timeout_s)
        except zmq.ZMQError as error:
            self.close()
            raise Unavailable(f"{address} is not an address: {error.strerror}") from None
        except DriftlineError:
            self.close()
            raise
        self.sequence = self._sent = self.acknowledged

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def send(self, payload: object) -> int:
        """Send a record and return its number; wait while the window is full.

        The wait continues as long as the front gives signs of life. Raises PayloadError if the
        record has values that the wire format lacks, is larger than 16 MiB, is nested more than 100
        deep, or has a dict with keys that are sequences. Such a record takes no number. Raises
        Unavailable if the front gives no sign of life for `timeout_s`, or if this producer or the
        stream has ended. Also raises what `flush` raises because of earlier records.
        """
        number = self.sequence + 1
        data = pack(payload)
        if reason := why_invalid_record(payload, len(data), of_producer=True):
            raise PayloadError(f"record {number} of {self.id!r} cannot be sent: {reason}")
        header = pack((MAGIC, IntakeKind.RECORD, self.id, self._session, number, None))[:-1]
        message = header + data  # in place of the packed None
        del data
        self._wait(lambda: self._has_room(len(message)) or self.ended, self.timeout_s)
        if self.ended:
            raise self._make_ended_error()
        if not self._unacknowledged:
            self._request_at = monotonic() + REQUEST_INTERVAL_S
        self.sequence = number
        self._unacknowledged[number] = message
        self._bytes += len(message)
        self._send_pending()
        return number

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all records are acknowledged, as long as the front gives signs of life.

        `timeout_s`: replaces that of the producer. Raises Unavailable if the front gives no sign of
        life for this long, refuses the producer, or accepts no more records because this producer
        or the stream has ended; PayloadError if the front rejects a record; StateMismatch if
        the front has fewer records than it had acknowledged; NotPermitted if it rejects the key.
        """
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        self._wait(lambda: not self._unacknowledged or self.ended, wait_s)
        if self._unacknowledged:
            raise self._make_ended_error()

    def end(self, timeout_s: float | None = None) -> None:
        """End this producer for good: the front accepts no more records with its id.

        The stream ends once every producer that ever sent a record has ended. So each of several
        producers has to send its first record before all others have ended. May be called again.
        Raises the errors of `flush`, and Unavailable if this producer has never sent a record.
        """
        self.flush(timeout_s)
        self._is_ending = True
        self._request_at = 0.0
        self._wait(lambda: self.ended, self.timeout_s if timeout_s is None else timeout_s)

    def close(self) -> None:
        """Close the connection at once; unacknowledged records may be lost."""
        self._refusals.close()
        self._context.destroy(linger=0)

    def _make_ended_error(self) -> Unavailable:
        reason = f"producer {self.id!r} has ended" if self.acknowledged else "the stream has ended"
        return Unavailable(f"{self.address} accepts no more records: {reason}")

    def _has_room(self, size: int) -> bool:
        """Return whether a message of this size may be sent."""
        count = len(self._unacknowledged)
        return not count or (count < self.window and self._bytes + size <= self.window_bytes)

    def _wait(self, is_done: Callable[[], bool], timeout_s: float) -> None:
        """Send records and requests, and handle answers, until a condition holds.

        Raises Unavailable if the front gives no sign of life for `timeout_s`.
        """
        self._sign_at = monotonic()
        self._receive_answers()
        while not is_done():
            now = monotonic()
            deadline = self._sign_at + timeout_s
            if now >= deadline:
                hint = self._refusals.hint or resolution_error(self._endpoint)
                raise Unavailable(
                    f"producer {self.id!r} waited {timeout_s:g} s for {self.address} "
                    f"({len(self._unacknowledged)} records unacknowledged): is the flow running?"
                    f"{hint}"
                )
            if now >= self._request_at:
                self._is_request_due = True
                self._request_at = now + self._request_interval_s
                self._request_interval_s = min(2 * self._request_interval_s, REQUEST_INTERVAL_MAX_S)
            self._send_pending()
            events = zmq.POLLIN | (zmq.POLLOUT if self._has_to_send() else 0)
            wake_at = min(deadline, self._request_at)
            self._socket.poll(max(1, ceil((wake_at - now) * 1000)), events)
            self._receive_answers()

    def _has_to_send(self) -> bool:
        return self._is_request_due or (self._sent < self.sequence and not self._awaits_sync)

    def _send_pending(self) -> None:
        """Send records, and a due request, until the connection accepts no more."""
        send = self._socket.send
        try:
            while self._sent < self.sequence and not self._awaits_sync:
                send(self._unacknowledged[self._sent + 1], zmq.NOBLOCK, copy=False)
                self._sent += 1
            if self._is_request_due:
                kind = IntakeKind.END if self._is_ending else IntakeKind.HELLO
                last_number = (self.sequence,) if self._is_ending else ()
                send(pack((MAGIC, kind, self.id, self._session, *last_number)), zmq.NOBLOCK)
                self._is_request_due = False
                self._awaits_sync = True
        except zmq.Again:
            pass  # not connected, or back-pressure

    def _receive_answers(self) -> None:
        """Handle the answers that have arrived."""
        self._refusals.check()
        try:
            while True:
                self._handle_answer(decode_answer(self._socket.recv(zmq.NOBLOCK)))
        except zmq.Again:
            pass
        except MalformedMessage as error:
            raise Unavailable(f"{self.address} is not the intake of a front: {error}") from None

    def _handle_answer(self, answer: IntakeReply) -> None:
        kind, session, acknowledged, below, number, reason = answer
        if kind is IntakeKind.FENCED and session > self._session:
            if self._is_synced:
                raise Unavailable(f"another process sends as {self.id!r}: give each its own id")
            self._session = session + 1  # the clock of an earlier process was ahead of this one's
            self._request_at = 0.0
        if session != self._session:
            return
        now = monotonic()
        if acknowledged > self.acknowledged or kind is not IntakeKind.SYNC or not self._is_synced:
            self._sign_at = now
        if kind is not IntakeKind.ACK:
            self._awaits_sync = False
        self._request_interval_s = REQUEST_INTERVAL_S
        self._request_at = now + (
            REQUEST_INTERVAL_MAX_S if self._awaits_sync else REQUEST_INTERVAL_S
        )
        if acknowledged < self.acknowledged:
            raise StateMismatch(
                f"{self.address} had {self.acknowledged} records of {self.id!r}, and now has "
                f"{acknowledged}: has its input log been replaced?"
            )
        self.acknowledged = acknowledged
        self.below = max(self.below, below)
        while self._unacknowledged and next(iter(self._unacknowledged)) <= acknowledged:
            self._bytes -= len(self._unacknowledged.pop(next(iter(self._unacknowledged))))
        self._sent = max(self._sent, self.acknowledged)
        if kind is IntakeKind.REFUSED and number:
            raise PayloadError(f"{self.address} refused record {number} of {self.id!r}: {reason}")
        if kind is IntakeKind.REFUSED:
            raise Unavailable(f"{self.address} refused producer {self.id!r}: {reason}")
        self.ended = self.ended or kind is IntakeKind.ENDED
        if kind is IntakeKind.SYNC or self.ended:
            self._is_synced = True
            self._sent = self.acknowledged
