"""A corpus consists of the documents of its source, for any number of writing tasks."""

from __future__ import annotations

import bz2
import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from driftline.connectors.files import ZipfSource, open_source
from driftline.connectors.files import splits as splits_module
from driftline.engine.errors import StateMismatch
from driftline.engine.sources import BadRecord, ListSource, Source
from driftline.pipeline.commands import Sessions
from driftline.pipeline.commands import spark as command
from driftline.pipeline.corpus import CorpusCounts, make_corpus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (
    "<page><title>T {n}</title><ns>0</ns><id>{id}</id><revision><text>"
    "The '''lead''' of [[page]] {n}\n== Part ==\nmore, more Words\n== Empty ==\n"
    "</text></revision></page>\n"
)
BAD = 17


def dump(path: Path, pages: int = 40, bad: int = BAD) -> Source:
    """Write a multistream dump of ten pages a stream; one page has no id."""
    texts = [PAGE.format(n=n, id="none" if n == bad else n) for n in range(1, pages + 1)]
    streams = ["<mediawiki>\n", *("".join(texts[i : i + 10]) for i in range(0, pages, 10))]
    streams.append("</mediawiki>\n")
    path.write_bytes(b"".join(bz2.compress(stream.encode()) for stream in streams))
    return open_source(path, sections=True)


def read(source: Source) -> tuple[list[tuple[int, object]], list[BadRecord]]:
    """Return the records and the bad records of a source."""
    found = list(source.read(1))
    bad = [record for record in found if isinstance(record, BadRecord)]
    return [record for record in found if not isinstance(record, BadRecord)], bad


def lines(directory: Path, pattern: str) -> list[dict[str, object]]:
    files = sorted(directory.glob(pattern))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def read_parquet(file: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = parquet.read_table(file).to_pylist()
    return rows


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_corpus_of_a_split_dump_has_all_its_documents(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(splits_module, "SPLIT_BYTES_MIN", 16)
    source = dump(tmp_path / "dump.xml.bz2")
    documents, bad = read(source)
    out = tmp_path / "out"
    assert make_corpus(spark, source, out, form) == CorpusCounts(len(documents), 1)

    files = sorted(out.glob(f"documents-*.{form}"))
    assert len(files) > 2, "written in parallel"
    if form == "jsonl":
        assert lines(out, "*.jsonl") == [document for _, document in documents]
    else:
        rows = [row for file in files for row in read_parquet(file)]
        assert [(row.pop("time"), row) for row in rows] == documents
    assert lines(out, "dead-letters/*.jsonl") == [
        {"record": b.time, "file": b.file, "reason": b.reason, "value": b.raw or b.text}
        for b in bad
    ]


def test_records_keep_ids_and_records_without_text_are_dead_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = [
        {"id": 5, "text": "a", "title": None, "more": 1},
        {"id": 6},
        {"id": "x", "text": 7},
        {"id": "y", "title": "Б", "text": "b\nc\u2028d"},
    ]
    out = tmp_path / "a [strange] name"
    assert make_corpus(spark, ListSource(records), out, "jsonl") == CorpusCounts(2, 2)
    assert [json.loads(line) for line in (out / "documents-spark-00000.jsonl").open()] == [
        {"id": 5, "title": "", "text": "a"},
        {"id": "y", "title": "Б", "text": "b\nc\u2028d"},
    ]
    assert [(bad["record"], bad["reason"]) for bad in lines(out, "dead-letters/*")] == [
        (2, "field 'text' is missing"),
        (3, "field 'text' is of type int"),
    ]


def test_existing_outputs_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "documents-spark-00000.parquet").write_text("mine")
    with pytest.raises(StateMismatch, match="already holds outputs"):
        make_corpus(spark, ZipfSource(1), tmp_path, "jsonl")
    assert (tmp_path / "documents-spark-00000.parquet").read_text() == "mine"


def test_command_makes_a_corpus_and_reports_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sessions, "start", lambda self, what: nullcontext(spark))
    out, done = tmp_path / "out", tmp_path / "done.json"
    options = ["--input", "zipf:60", "--output", str(out), "--json", str(done)]
    found = CliRunner().invoke(command, ["corpus", *options])
    assert found.exit_code == 0, found.output
    report = json.loads(done.read_text())
    assert report.pop("seconds") > 0
    assert report == {"documents": 60, "bad_records": 0}
    assert sum(len(read_parquet(file)) for file in out.glob("*.parquet")) == 60
