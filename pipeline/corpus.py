"""A corpus: the documents of a dump, cleaned, as Parquet or JSON lines.

    count the parts of the source -> read each from its number on, and write it

One file for each part, written by the task that reads it: in the order of their names, the files
hold the documents in the order of the source, each once. Nothing comes to the driver but counts.
What cannot be read is set aside, as a run of a flow with dead letters does it, and ends nothing.

    documents-spark-00000.parquet           columns time, id, title, text
    documents-spark-00000.jsonl             or {"id": "12#1", "title": "Cat: Food", "text": ...}
    dead-letters/input-0-spark-00000.jsonl  {"record": 7, "file": ..., "reason": ..., "text": ...}

A time is a document's number in the source, bad ones counted. Memory of a task: one page, and one
row group of Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from engine.sinks.lines import DEAD_LETTERS
from engine.sources import BadRecord, Source
from engine.sources.parts import Part, in_parts, starts
from pipeline.failures import explained
from pipeline.outputs import Drafts, claimed
from pipeline.rows import Batches
from pipeline.runner import PARTS_PER_CORE, counted
from pipeline.session import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW_GROUP_CHARS = 2**25
"""Characters of text in a row group of Parquet, about."""

_ARROW = pa.schema(
    [("time", pa.int64()), ("id", pa.string()), ("title", pa.string()), ("text", pa.string())]
)


class Document(NamedTuple):
    """A document and its number in the source."""

    time: int
    id: int | str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Made:
    """How many documents a corpus has, and how many records could not be read."""

    documents: int
    bad_records: int


def make_corpus(spark: SparkSession, source: Source, output: Path, form: str) -> Made:
    """Write the documents of a source to a directory, in a form of FORMS.

    Raises StateMismatch if the directory holds outputs already, Unavailable if it cannot be made.
    """
    from pyspark.sql import functions as f

    with claimed(output), explained():
        parts = in_parts(source, PARTS_PER_CORE * spark.sparkContext.defaultParallelism)
        firsts = starts(counted(spark, parts))
        task = WritePart(source.name, parts, firsts, output, form)

        def work(batches: Batches) -> Batches:  # Spark wants to see a plain function
            return task(batches)

        numbers = spark.range(0, len(firsts), 1, len(firsts))
        made = numbers.mapInArrow(work, "documents long, bad_records long")
        (total,) = made.agg(f.sum("documents"), f.sum("bad_records")).collect()
    return Made(*total)


def read_corpus(spark: SparkSession, directory: Path, form: str) -> DataFrame:
    """The documents of a corpus."""
    with explained():
        if form == "parquet":
            return spark.read.parquet(literal(directory))
        return spark.read.schema("id string, title string, text string").json(literal(directory))


@dataclass(frozen=True, slots=True)
class WritePart:
    """Reads parts and writes their documents. Takes rows whose column is the number of a part."""

    name: str
    parts: Sequence[Part]
    firsts: Sequence[tuple[int, int]]
    """(row, time) of the first of each part"""
    output: Path
    form: str

    def __call__(self, batches: Batches) -> Batches:
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            documents, bad_records = self._write(number)
            yield pa.record_batch({"documents": [documents], "bad_records": [bad_records]})

    def _write(self, number: int) -> tuple[int, int]:
        name = f"spark-{number:05}"
        with Drafts(self.output) as drafts, ExitStack() as stack:
            letters = _DeadLetters(drafts, f"{DEAD_LETTERS}/input-0-{name}.jsonl", stack)
            records = self.parts[number].read(*self.firsts[number])
            documents = letters.without_bad(_document(self.name, record) for record in records)
            path = drafts.path(f"documents-{name}.{self.form}")
            return FORMS[self.form](path, documents), letters.count


class _DeadLetters:
    """The file of a part's bad records, made when there is one."""

    def __init__(self, drafts: Drafts, name: str, stack: ExitStack) -> None:
        self.count = 0
        self._drafts = drafts
        self._name = name
        self._stack = stack
        self._file: TextIO | None = None

    def without_bad(self, records: Iterable[Document | BadRecord]) -> Iterator[Document]:
        """The documents; what is none goes to the file."""
        for record in records:
            if isinstance(record, BadRecord):
                self._set_aside(record)
            else:
                yield record

    def _set_aside(self, bad: BadRecord) -> None:
        if self._file is None:
            file = self._drafts.path(self._name).open("w", encoding="utf-8")
            self._file = self._stack.enter_context(file)
        about = {"record": bad.time, "file": bad.file, "reason": bad.reason, "text": bad.text}
        self._file.write(json.dumps(about, ensure_ascii=False) + "\n")
        self.count += 1


def _document(name: str, record: tuple[int, object] | BadRecord) -> Document | BadRecord:
    if isinstance(record, BadRecord):
        return record
    time, found = record
    assert isinstance(found, dict)
    text, title = found.get("text"), found.get("title")
    if not isinstance(text, str):
        what = f"is of type {type(text).__name__}" if "text" in found else "is missing"
        return BadRecord(time, name, f"field 'text' {what}", "")
    return Document(time, found["id"], str(title) if title else "", text)


def _write_json(path: Path, documents: Iterator[Document]) -> int:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for _, *about in documents:
            file.write(encode(dict(zip(("id", "title", "text"), about, strict=True))) + "\n")
            count += 1
    return count


def _write_parquet(path: Path, documents: Iterator[Document]) -> int:
    count = 0
    with pq.ParquetWriter(path, _ARROW, compression="zstd") as writer:
        for group in _row_groups(documents):
            times, ids, titles, texts = zip(*group, strict=True)
            columns = [times, map(str, ids), titles, texts]
            arrays = [pa.array(c, field.type) for c, field in zip(columns, _ARROW, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=_ARROW))
            count += len(group)
    return count


def _row_groups(documents: Iterator[Document]) -> Iterator[list[Document]]:
    group: list[Document] = []
    size = 0
    for document in documents:
        group.append(document)
        size += len(document.text)
        if size >= ROW_GROUP_CHARS:
            yield group
            group, size = [], 0
    if group:
        yield group


FORMS: dict[str, Callable[[Path, Iterator[Document]], int]] = {
    "parquet": _write_parquet,
    "jsonl": _write_json,
}
"""How the documents of a part are written, by the ending of the file."""
