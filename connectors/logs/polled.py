"""Records that a front polls from a live source: they are in its input log before outputs leave.

The offset of a record takes the place of a producer's number, and the partition that of the
producer: a record whose offset is not larger than the last one of its partition arrived before.
"""

from __future__ import annotations

from collections.abc import Callable

from driftline.connectors.logs.inputlog import PRODUCER_BYTES_MAX
from driftline.connectors.logs.received import Log, ReceivedSource
from driftline.engine.errors import InputError, PayloadError
from driftline.engine.wire.codec import pack
from driftline.engine.wire.limits import why_refused

OFFSET_MAX = (1 << 63) - 2


class PolledSource(ReceivedSource):
    """The records of one live source, with their labels.

    `records` counts the records in the log and those that arrived since it was opened: gaps between
    offsets hide how many earlier calls took.
    """

    def __init__(self, log: Log, now_us: Callable[[], int], name: str) -> None:
        super().__init__(log, now_us, name)
        self.records = log.count(0)

    def offsets(self) -> dict[str, int]:
        """Return partition -> offset of its last record in the log."""
        return {partition: number - 1 for partition, number in self._acknowledged.items()}

    def take(self, partition: str, offset: int, value: object) -> bool:
        """Take a record, unless it arrived before. Return whether it is new.

        Raises InputError for a record that cannot be stored.
        """
        where = f"{self.name}, partition {partition}"
        if type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
            raise InputError(where, 0, f"the offset {offset!r} is no integer from 0 on")
        if not isinstance(partition, str) or not 0 < len(partition.encode()) <= PRODUCER_BYTES_MAX:
            raise InputError(where, offset, "the partition is no text of 1 to 255 bytes")
        if offset < self.accepted(partition):
            return False
        try:
            data = pack(value)
        except PayloadError as error:
            raise InputError(where, offset, str(error)) from None
        if reason := why_refused(value, len(data)):
            raise InputError(where, offset, reason)
        self._take(partition, offset + 1, value, data)
        return True
