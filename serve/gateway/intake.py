"""The intake of a service: accepts records of its gateway and of producers.

The gateway runs in the same process and needs no protocol: it submits lists of records, and a
callback reports the label time of each record once the record is durable, or why it was rejected.
Records of the gateway queue here while the source is full. Records of producers and of the gateway
are taken alternately, so that producers alone cannot fill the source. Single records and records of
bulks have separate queues, also served alternately: at most one record of a bulk is taken before
each single record. While the log cannot store records, as on a full disk, the intake rejects all
queued records.

Input: `submit`. Output: the outcome of each record, in lists. Invariant: a record whose label time
was reported is in the log; a rejected record may be in the log, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from errno import EDQUOT, ENOSPC
from os import strerror
from typing import Generic, TypeVar

from driftline.connectors.logs.received import Receipt, ReceivedSource
from driftline.deploy.roles.intake import IntakeKind
from driftline.deploy.runtime.sockets.intake_socket import IntakeSocket, Keys
from driftline.engine.errors import PayloadError
from driftline.engine.wire.kinds import SenderKey
from driftline.serve.errors import ApiError

GATEWAY = "driftline-gateway"
"""The producer id of the gateway's records, reserved for it."""

SINGLE_RECORDS_MAX = 20_000
"""Maximum number of single records of the gateway in the queue; bulks have no limit here."""

_DISK_FULL = tuple(map(strerror, (ENOSPC, EDQUOT)))
"""Error texts of the operating system. If the disk or a quota is full, the reason of the obstacle
contains one of them."""

Token = TypeVar("Token")

Outcome = int | ApiError
"""The label time of a record, or the reason why it was rejected."""


class ServiceIntake(IntakeSocket, Generic[Token]):
    """The intake of a service.

    `report`: called with the outcomes of records, each with the token passed to `submit`.
    """

    needs_producers = False  # the gateway also provides records

    def __init__(
        self,
        source: ReceivedSource,
        address: str,
        report: Callable[[list[tuple[Token, Outcome]]], None],
        *,
        keys: Keys | None = None,
    ) -> None:
        super().__init__(source, address, name="intake-0", keys=keys)
        self._report = report
        self._single: deque[tuple[Token, object]] = deque()
        self._bulk: deque[tuple[Token, object]] = deque()
        self._bulk_is_next = False
        """Whether the next record is taken from the bulk queue."""
        self._unstored: deque[tuple[int, int, Token]] = deque()
        """(number, label time, token) of accepted records that are not durable yet."""
        self._outcomes: list[tuple[Token, Outcome]] = []

    def submit(self, records: Sequence[tuple[Token, object]], *, bulk: bool = False) -> None:
        """Queue records, each with a token that identifies its outcome.

        `bulk`: whether the records are part of a bulk.
        """
        refusal = self._refusal()
        if refusal is None and not bulk and len(self._single) + len(records) > SINGLE_RECORDS_MAX:
            text = f"{SINGLE_RECORDS_MAX} records wait to be stored: send the record again later"
            refusal = ApiError("busy", text)
        if refusal is None:
            (self._bulk if bulk else self._single).extend(records)
        else:
            self._outcomes += [(token, refusal) for token, _ in records]

    def turn(self) -> bool:
        self.take_waiting()  # producers first, so that the gateway alone cannot fill the source
        while (self._single or self._bulk) and self.has_room():
            self._take_one()
        more = super().turn()
        if self.obstacles:
            self._reject_waiting()
        if self._outcomes:
            self._report(self._outcomes)
            self._outcomes = []
        return more

    def on_stored(self, producers: Sequence[str]) -> None:
        super().on_stored(producers)
        last = self.source.last_acknowledged(GATEWAY)
        while self._unstored and self._unstored[0][0] <= last:
            _, time, token = self._unstored.popleft()
            self._outcomes.append((token, time))

    def _take_next(self) -> None:
        super()._take_next()
        if self._single or self._bulk:  # alternate, so that producers alone cannot fill the source
            self._take_one()

    def _handle(
        self,
        route: bytes,
        request: tuple[IntakeKind, str, int, int, object],
        sender_key: SenderKey | None,
    ) -> None:
        _, producer, session, number, _ = request
        if producer == GATEWAY:
            self._refuse(route, producer, session, number, "this producer id is reserved")
        else:
            super()._handle(route, request, sender_key)

    def _take_one(self) -> None:
        """Pass one queued record to the source. Precondition: a queue is not empty."""
        bulk = bool(self._bulk) and (self._bulk_is_next or not self._single)
        self._bulk_is_next = not bulk
        token, record = (self._bulk if bulk else self._single).popleft()
        number = self.source.last_accepted(GATEWAY) + 1
        try:
            receipt = self.source.receive(GATEWAY, number, record)
        except PayloadError as error:
            self._outcomes.append((token, ApiError("invalid", f"the record is rejected: {error}")))
            return
        if receipt is Receipt.ACCEPTED:
            self._unstored.append((number, self.source.last_received_time, token))
        else:
            self._outcomes.append(
                (token, ApiError("unavailable", f"the input rejects the record: {receipt.value}"))
            )

    def _reject_waiting(self) -> None:
        """Reject all queued records, and accepted ones that are not durable yet."""
        refusal = self._refusal()
        assert refusal is not None
        for queue in (self._single, self._bulk):
            self._outcomes += [(token, refusal) for token, _ in queue]
            queue.clear()
        text = f"{refusal}. The record may be stored later: send it again with the same key, if any"
        may_be_stored = ApiError(refusal.code, text)
        self._outcomes += [(token, may_be_stored) for *_, token in self._unstored]
        self._unstored.clear()

    def _refusal(self) -> ApiError | None:
        """Return the error with which records are rejected now; None if records are accepted."""
        if self.source.stopped or self.source.closed:
            return ApiError("unavailable", "the service is shutting down: send the record again")
        if self.obstacles:
            reason = next(iter(self.obstacles.values()))
            code = "full" if any(text in reason for text in _DISK_FULL) else "unavailable"
            return ApiError(code, f"nothing can be stored now: {reason}")
        return None
