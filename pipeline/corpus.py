"""A corpus: the documents of a dump, as Parquet or JSON lines.

    count the records of each split -> read each split, number its documents, write them

There is one file per split. Read in the order of their names, the files hold the documents in the
order of the source, each once. The driver gets only counts. Records that cannot be read are set
aside, as in a run with dead letters. If the input breaks off, the corpus ends there, and the last
bad record states the reason.

    documents-spark-00000.parquet           columns time, id, title, text
    documents-spark-00000.jsonl             or {"id": "12#1", "title": "Cat: Food", "text": ...}
    dead-letters/input-0-spark-00000.jsonl  {"record": 7, "file": ..., "reason": ..., "value": ...}

The time of a document is its number in the source, which also counts bad records. If the source
splits wiki pages into sections, each section is a document, without wiki markup. A task holds one
page and one row group of Parquet in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from driftline.connectors.files.splits import Split, first_rows_and_times, splits_of
from driftline.engine.sources import BadRecord, Source
from driftline.pipeline.outputs import Drafts, bad_records_file, claim_directory
from driftline.pipeline.runner import SPLITS_PER_CORE, count_splits
from driftline.pipeline.tasks import (
    Batches,
    as_batch,
    map_partitions,
    numbers,
    read_numbers,
    reraise_task_errors,
    split_by_size,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW_GROUP_CHARS = 2**25
"""Approximate size of a Parquet row group, in characters of text."""

_PARQUET_SCHEMA = pa.schema(
    [("time", pa.int64()), ("id", pa.string()), ("title", pa.string()), ("text", pa.string())]
)


class CorpusDocument(NamedTuple):
    """A document and its number in the source."""

    time: int
    id: int | str
    title: str
    text: str


class CorpusCounts(Struct, frozen=True):
    """Numbers of documents in a corpus, and of records that could not be read."""

    documents: int
    bad_records: int


def make_corpus(spark: SparkSession, source: Source, output: Path, form: str) -> CorpusCounts:
    """Write the documents of a source to a directory; `form`: a key of FORMS.

    Raises StateMismatch if the directory already holds outputs, Unavailable if it cannot be made or
    Spark fails.
    """
    from pyspark.sql import functions as f

    with claim_directory(output), reraise_task_errors():
        splits = splits_of(source, SPLITS_PER_CORE * spark.sparkContext.defaultParallelism)
        firsts = first_rows_and_times(count_splits(spark, splits))
        task = WriteSplit(source.name, splits, firsts, output, form)
        schema = "documents long, bad_records long"
        counts = map_partitions(numbers(spark, len(firsts)), task, schema)
        (totals,) = counts.agg(f.sum("documents"), f.sum("bad_records")).collect()
    return CorpusCounts(*totals)


class WriteSplit(Struct, frozen=True):
    """Task that reads splits and writes their documents.

    Input: rows (number of a split). Output: rows (number of documents, number of bad records).
    """

    name: str
    """The name of the source, for errors."""
    splits: Sequence[Split]
    firsts: Sequence[tuple[int, int]]
    """(row, time) of each split's first record; the last split is the one in which the input breaks
    off, if it does."""
    output: Path
    form: str

    def __call__(self, batches: Batches) -> Batches:
        for number in read_numbers(batches):
            documents, bad_records = self._write(number)
            yield pa.record_batch({"documents": [documents], "bad_records": [bad_records]})

    def _write(self, number: int) -> tuple[int, int]:
        bad_records = 0

        def documents() -> Iterator[CorpusDocument]:
            nonlocal bad_records
            for record in self.splits[number].read(*self.firsts[number]):
                document = _to_document(self.name, record)
                if isinstance(document, BadRecord):
                    bad_records += 1
                    drafts.add_line(bad_records_file(0, number), document.as_line())
                else:
                    yield document

        with Drafts(self.output) as drafts:
            path = drafts.path(f"documents-spark-{number:05}.{self.form}")
            return FORMS[self.form](path, documents()), bad_records


def _to_document(name: str, record: tuple[int, object] | BadRecord) -> CorpusDocument | BadRecord:
    if isinstance(record, BadRecord):
        return record
    time, fields = record
    assert isinstance(fields, dict)
    text, title = fields.get("text"), fields.get("title")
    if not isinstance(text, str):
        problem = f"is of type {type(text).__name__}" if "text" in fields else "is missing"
        return BadRecord(time, name, f"field 'text' {problem}", "")
    return CorpusDocument(time, fields["id"], str(title) if title else "", text)


def _write_json(path: Path, documents: Iterator[CorpusDocument]) -> int:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for _, *fields in documents:
            file.write(encode(dict(zip(("id", "title", "text"), fields, strict=True))) + "\n")
            count += 1
    return count


def _write_parquet(path: Path, documents: Iterator[CorpusDocument]) -> int:
    count = 0
    with pq.ParquetWriter(path, _PARQUET_SCHEMA, compression="zstd") as writer:
        for group in split_by_size(documents, lambda document: len(document.text), ROW_GROUP_CHARS):
            with_text_ids = [document._replace(id=str(document.id)) for document in group]
            writer.write_batch(as_batch(with_text_ids, _PARQUET_SCHEMA))
            count += len(group)
    return count


FORMS: dict[str, Callable[[Path, Iterator[CorpusDocument]], int]] = {
    "parquet": _write_parquet,
    "jsonl": _write_json,
}
"""File extension -> the function that writes the documents of a split and returns their number."""
