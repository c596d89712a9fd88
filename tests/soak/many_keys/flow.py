"""Flow of the soak with many keys, and its source: each key has one or two records.

Records arrive in groups of three: the first records of two keys, and the second record of a key of
an earlier group. So each key is needed for about half of the time to live, and never again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypedDict

from driftline import Context, Count, Flow, ReducingState, Tumbling

KEYS = int(os.environ.get("SOAK_KEYS", "1_000_000"))
TTLS = 100
"""Event time that the records cover, in times to live."""

RECORDS = KEYS * 3 // 2
TTL_US = RECORDS * 1000 // TTLS
"""Time to live, and size of a window: event times are a millisecond apart."""

GROUPS_BACK = RECORDS // TTLS // 6
"""Distance to the group of the second record, half of the time to live."""

SHOWN = 1000
"""One key in this many has outputs."""


class Seen(TypedDict):
    key: int
    at: int


def record(number: int) -> Seen:
    """Return a record, by its number from 1. Keys below 0 have no first record."""
    group, place = divmod(number - 1, 3)
    key = 2 * group + place if place < 2 else 2 * (group - GROUPS_BACK)
    return {"key": key, "at": number * 1000}


class Keys:
    """Source of the records, and of further ones until the run is drained."""

    name = "many keys"

    def read(self, start: int) -> Iterator[tuple[int, object]]:
        for number in range(max(1, start), 2 * RECORDS):
            yield number, record(number)

    def progress(self) -> tuple[int, int] | None:
        return None

    def identity(self) -> str:
        return f"{self.name}: {KEYS}"


def count(context: Context, seen: Seen, times: ReducingState[int]) -> list[tuple[int, int]]:
    so_far = times.add(1)
    return [] if seen["key"] % SHOWN else [(seen["key"], so_far)]


flow = Flow("many keys")
_keys = flow.source("keys", event_time="at", unit="us").key_by("key")
_times = ReducingState[int]("times", lambda one, other: one + other, ttl=TTL_US / 1e6)
_keys.process(count, _times, name="counted").sink("counts")
_rows = _keys.window(Tumbling(TTL_US / 1e6)).aggregate(name="windows", times=Count())
_rows.filter(lambda row: row["key"] % SHOWN == 0).sink("rows")
