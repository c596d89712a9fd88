"""The interface between the HTTP server of a service and its flow, journal and views.

Times are integers; `serve.views.tokens` converts them to text. Not thread-safe: call it from one
asyncio loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from driftline.engine.wire.bundles import Item
from driftline.serve.journal import Span
from driftline.serve.views.hosted import Answer, Question

REQUEST_TIMEOUT_S = 10.0
"""Default timeout, in seconds, of a read that waits for a T, and of storing a single record."""


class Backend(Protocol):
    """A running service."""

    @property
    def time(self) -> int:
        """T: all outputs below it have arrived at the gateway; 0 while the service starts."""

    @property
    def is_ready(self) -> bool:
        """Whether reads are served: the start is complete.

        A start waits until journal and views have caught up with earlier sessions, but at most for
        `serve.gateway.service.CATCH_UP_TIMEOUT_S`.
        """

    @property
    def stalled_s(self) -> float:
        """Seconds for which records have waited without an advance of T; 0 if no record waits."""

    @property
    def oldest(self) -> int:
        """A lower bound of the oldest time whose outputs can still be read; 0 if unknown."""

    def view_time(self, view: str) -> int:
        """Return the view's T: every shard has applied all outputs below it.

        It never decreases. A read as of this T does not wait.
        """

    async def write(self, record: object, *, bulk: bool = False) -> int:
        """Pass a record to the flow's source.

        `bulk`: whether the record is part of a bulk, so that single records may overtake it.

        Returns:
            The label time of the record, once the record is durable; its outputs follow later.

        Raises:
            ApiError: "busy" (the queue of single records is full: retry later), "full" (the disk is
                full), "unavailable" (the record cannot be stored now for another reason, or was not
                stored in time), "invalid" (the record cannot be encoded, or is too large). A record
                rejected as "full" or "unavailable" may be stored nevertheless.
        """

    async def wait_for_outputs(
        self, time: int, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Sequence[Item]:
        """Return the outputs with this label time, once T is above it.

        Raises ApiError "unavailable" after `timeout_s`.
        """

    async def ask(
        self,
        view: str,
        question: Question,
        *,
        after: int = 0,
        timeout_s: float = REQUEST_TIMEOUT_S,
        client: str = "",
    ) -> Sequence[Answer]:
        """Return the answers of the shards of a view, in the order of shards.

        A shard answers once its T is at least `after` and, if given, `question["at"]`: all outputs
        with smaller label times are applied. The result omits shards that answer "absent", if
        another shard has an answer. `client`: the client's name; each shard divides its processing
        time fairly between clients.

        Raises the ApiError of a shard: "absent" only if all shards raise it; "unavailable" also if
        a shard does not reach the required T within `timeout_s`, or its process does not answer.
        Cancelling the task cancels the question.
        """

    def spans(self, since: int) -> AsyncGenerator[Span, None]:
        """Yield all outputs from a time on, in order, until the service ends.

        Yields at least one span per second, which may be empty. A slow reader delays no other
        reader. Raises RetentionExceeded; Unavailable if the journal cannot be read.
        """

    def figures(self) -> Mapping[str, Mapping[str, float]]:
        """Return metrics: name of a part (a view's shard, the journal, ...) -> name -> value."""
