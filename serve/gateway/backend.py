"""What the HTTP server of a service stands on: a flow that takes records, its journal, its views.

All times are T as integers (`serve.views.tokens` makes texts of them). All is for one asyncio loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from driftline.engine.wire.bundles import Item
from driftline.serve.journal import Span
from driftline.serve.views.hosted import Answer, Question

WITHIN_S = 10.0
"""How long a question waits for a T that a view has not reached, unless it says otherwise."""


class Backend(Protocol):
    """A running service."""

    @property
    def time(self) -> int:
        """T: all outputs below it have come here. 0 while the service starts."""

    @property
    def started(self) -> bool:
        """Whether `time` is no more behind that of the session before."""

    @property
    def waits_s(self) -> float:
        """For so many seconds records have waited while T stood still; 0: none waits."""

    @property
    def oldest(self) -> int:
        """The outputs from this time on can be read again."""

    def view_time(self, view: str) -> int:
        """T: all shards of the view have applied all outputs below it. It never decreases.

        A read as of this T does not wait for the ingestion of records.
        """

    async def write(self, record: object, *, bulk: bool = False) -> int:
        """Hand a record to the flow's source. `bulk`: one of many, which single records overtake.

        Returns:
            Its label time, once the record is durable: it will be in the outputs.

        Raises:
            Refused: "busy" (there is no room for a single record: the caller may try again), "full"
                (the disk), "unavailable" (it cannot be stored now for another reason), "invalid"
                (it cannot travel, or is too large).
        """

    async def passed(self, time: int, within_s: float = WITHIN_S) -> Sequence[Item]:
        """The outputs with this label time, once the journal has passed it.

        Raises Refused: "unavailable", if that takes too long.
        """

    async def ask(
        self,
        view: str,
        question: Question,
        *,
        after: int = 0,
        within_s: float = WITHIN_S,
        asker: str = "",
    ) -> Sequence[Answer]:
        """The answer of each shard of a view, in the order of shards.

        `asker`: for whom it is asked: a shard shares its time between askers.
        A shard answers once it has applied all outputs below `after`, and below `question["at"]`.
        One that refuses as "absent" has no answer here, if another one answers.
        Raises Refused, as the view does, "absent" if all shards do; "unavailable" if it takes
        longer than `within_s`, or no process of the view can be reached meanwhile. Cancelling it
        takes the question back.
        """

    def spans(self, since: int) -> AsyncGenerator[Span, None]:
        """All outputs from a time on, in order, without an end; spans may be empty. There is one at
        least every second.

        Who reads slowly hinders nobody. Raises NoLongerRetained.
        """

    def figures(self) -> Mapping[str, Mapping[str, float]]:
        """Figures of each part (a view's shard, the journal, the flow), by its name."""
