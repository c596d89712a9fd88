"""Flow of the cluster soak: an output depends on all earlier records of its key.

A record is {"producer": text, "number": int}.
"""

from __future__ import annotations

from typing import TypedDict
from zlib import crc32

from driftline import Flow, Stream, ValueState

KEYS = 31


class Record(TypedDict):
    producer: str
    number: int


class Link(TypedDict):
    """A record, and a checksum over all records of its key up to it, in order."""

    producer: str
    number: int
    chain: int


def key_of(record: Record) -> int:
    return record["number"] % KEYS


def link(record: Record, chain: ValueState[int]) -> Link:
    text = f"{record['producer']} {record['number']}"
    chain.set(crc32(text.encode(), chain.get() or 0))
    return {**record, "chain": chain.get() or 0}


def chained(records: Stream[Record]) -> None:
    """Return a flow that emits the links of the records of all producers."""
    records.key_by(key_of).scan(link, ValueState("chain")).sink("links")


flow = Flow("chained")
chained(flow.source("one", of=Record).union(flow.source("two", of=Record)))

alone = Flow("chained, from one source")
chained(alone.source("all", of=Record))
