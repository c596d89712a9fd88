"""The contract of live sources: records that arrive while a flow runs.

The process of the front polls the source. It assigns each record a label, stores the record and its
offset in the input log in one step, and only then acknowledges the record upstream. After a crash
the source continues after the stored offsets, and a record that arrives twice is recognised by its
offset. So the remote system only needs numbers that grow within a partition: offsets in Kafka, byte
positions in a file, sequence numbers in a stream.

A source that counts, and ends after three records:

    >>> class Counter(LiveSource):
    ...     name = "counter"
    ...     def start(self, offsets):
    ...         self.next = offsets.get("numbers", -1) + 1
    ...     def poll(self, timeout_s):
    ...         if self.next == 3:
    ...             return None
    ...         self.next += 1
    ...         return [Record("numbers", self.next - 1, {"n": self.next - 1})]
    >>> counter = Counter()
    >>> counter.start({"numbers": 1})
    >>> counter.poll(0.0), counter.poll(0.0)
    ([Record(partition='numbers', offset=2, value={'n': 2})], None)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Record(NamedTuple):
    """A record of a live source."""

    partition: str
    """Name of the sequence to which the offset belongs: 1 to 255 bytes in UTF-8. The input log
    keeps the last offset of each partition for ever, so use at most 100,000 partitions."""
    offset: int
    """Grows within its partition; at least 0, at most 2^63 - 2. Gaps are allowed."""
    value: object
    """The payload: None, bool, int, float, str, bytes, or tuples, lists and dicts of these."""


class LiveSource(ABC):
    """A source that a run polls. One thread makes all calls of `start`, `poll`, `acknowledge` and
    `close`."""

    name = "live source"
    """The name of the source in errors and in progress reports."""

    @abstractmethod
    def start(self, offsets: Mapping[str, int]) -> None:
        """Connect, and continue after these offsets.

        Args:
            offsets: Partition -> offset of its last stored record; empty at the first start.

        Raises:
            Unavailable: The system cannot be reached; the run ends with this error.
        """

    @abstractmethod
    def poll(self, timeout_s: float) -> Sequence[Record] | None:
        """Return the next records.

        Args:
            timeout_s: Return an empty list after waiting this long for a record.

        Returns:
            Records, with ascending offsets within each partition; an empty list if there are none
            yet; None if the source has ended and no record will follow. A record whose offset is
            not above the largest one so far counts as a repetition, and is dropped with a warning.

        Raises:
            Unavailable: The system cannot be reached; `poll` is called again a second later.
        """

    def acknowledge(  # noqa: B027 - optional: a log, say, needs no acknowledgement
        self, offsets: Mapping[str, int]
    ) -> None:
        """Acknowledge upstream that the records up to these offsets are durable.

        Args:
            offsets: Partition -> offset, for the partitions with new durable records; in the first
                call of a run, for all partitions. Some may have been acknowledged before.

        Raises:
            Unavailable: The system cannot be reached; `acknowledge` is called again with the same
                or larger offsets (at the end of a run, for at most 5 s).
        """

    def close(  # noqa: B027 - optional
        self,
    ) -> None:
        """Release connections."""

    def identity(self) -> str:
        """Return a text that identifies the input: a state directory accepts no other input."""
        return self.name
