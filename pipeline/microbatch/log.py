"""The log that micro-batches read: a file of packed records, as a data source of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgpack
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from driftline.pipeline.microbatch.columns import binary

BATCH_RECORDS = 100
"""The largest number of records in a batch: so a batch ends every few seconds under load, too."""


class RecordLog(DataSource):
    """A file of packed values that is only ever appended to."""

    @classmethod
    def name(cls) -> str:
        return "driftline-log"

    def schema(self) -> StructType:
        return binary("record")

    def streamReader(self, schema: StructType) -> RecordReader:
        return RecordReader(Path(self.options["path"]))


@dataclass(frozen=True)
class Range(InputPartition):
    """A range of bytes of the log: whole records."""

    start: int
    end: int


class RecordReader(DataSourceStreamReader):
    """Reads the log; an offset is a position in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(BATCH_RECORDS)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        assert most is not None or isinstance(limit, ReadAllAvailable)
        return {"at": start["at"] + sum(map(len, whole_records(self._read(start["at"]), most)))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Range]:
        return [Range(start["at"], end["at"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        records = whole_records(self._read(partition.start, partition.end))
        yield pa.record_batch([pa.array(records, pa.binary())], ["record"])

    def _read(self, start: int, end: int | None = None) -> bytes:
        with self.path.open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(-1 if end is None else end - start)


def whole_records(data: bytes, most: int | None = None) -> list[bytes]:
    """The whole records at the beginning of `data`, at most `most`, without an unfinished last one.

    >>> whole_records(b"\\x01\\xa2hi\\xa2h")
    [b'\\x01', b'\\xa2hi']
    """
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    ends = [0]
    while most is None or len(ends) <= most:
        try:
            unpacker.skip()
        except msgpack.OutOfData:
            break
        ends.append(unpacker.tell())
    return [data[start:end] for start, end in pairwise(ends)]
