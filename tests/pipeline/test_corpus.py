"""A corpus is the documents of its source, however many tasks wrote it."""

from __future__ import annotations

import bz2
import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from driftline.connectors.files import ZipfSource, find_sample, open_source
from driftline.connectors.files import splits as splits_module
from driftline.connectors.files.generated import words
from driftline.engine.errors import StateMismatch
from driftline.engine.reference import run_reference
from driftline.engine.sources import BadRecord, ListSource, Source, strict
from driftline.index.flow import inverted_index
from driftline.pipeline.commands import Sessions
from driftline.pipeline.commands import spark as command
from driftline.pipeline.corpus import Made, make_corpus, read_corpus
from driftline.pipeline.statistics import fit, statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (
    "<page><title>T {n}</title><ns>0</ns><id>{id}</id><revision><text>"
    "The '''lead''' of [[page]] {n}\n== Part ==\nmore, more Words\n== Empty ==\n"
    "</text></revision></page>\n"
)
BAD = 17


def dump(path: Path, pages: int = 40, bad: int = BAD) -> Source:
    """A multistream dump of ten pages a stream, one of them without an id, in sections."""
    texts = [PAGE.format(n=n, id="none" if n == bad else n) for n in range(1, pages + 1)]
    streams = ["<mediawiki>\n", *("".join(texts[i : i + 10]) for i in range(0, pages, 10))]
    streams.append("</mediawiki>\n")
    path.write_bytes(b"".join(bz2.compress(stream.encode()) for stream in streams))
    return open_source(path, sections=True)


def read(source: Source) -> tuple[list[tuple[int, object]], list[BadRecord]]:
    """The records of a source, and those that are none."""
    found = list(source.read(1))
    bad = [record for record in found if isinstance(record, BadRecord)]
    return [record for record in found if not isinstance(record, BadRecord)], bad


def lines(directory: Path, pattern: str) -> list[dict[str, object]]:
    files = sorted(directory.glob(pattern))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_the_sample_is_a_corpus_with_the_words_of_the_index(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = open_source(find_sample(), sections=True)
    documents = [document for _, document in strict(source.read(1)) if isinstance(document, dict)]
    assert make_corpus(spark, source, tmp_path, "parquet") == Made(len(documents), 0)

    corpus = read_corpus(spark, tmp_path, "parquet")
    found = [row.asDict() for row in corpus.collect()]
    assert found == [{"time": n, **document} for n, document in enumerate(documents, 1)]

    figures = statistics(corpus)
    count = Counter(word for document in documents for word in words(document))
    within = Counter(word for document in documents for word in set(words(document)))
    assert (figures.documents, figures.words) == (len(documents), count.total())
    assert dict(figures.spectrum) == Counter(count.values())
    expected = sorted((-number, word, within[word]) for word, number in count.items())
    assert [(-w.count, w.word, w.documents) for w in figures.frequent] == expected[:20]
    assert figures.documents_per_word == {
        "mean": round(within.total() / len(within), 3),
        "median": sorted(within.values())[(len(within) - 1) // 2],
        "max": max(within.values()),
    }
    assert figures.zipf is not None
    assert 0.9 < figures.zipf.exponent < 1


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_dump_in_parts_is_the_dump(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(splits_module, "SPLIT_BYTES_MIN", 16)
    source = dump(tmp_path / "dump.xml.bz2")
    documents, bad = read(source)
    out = tmp_path / "out"
    assert make_corpus(spark, source, out, form) == Made(len(documents), 1)

    files = sorted(out.glob(f"documents-*.{form}"))
    assert len(files) > 2, "written in parallel"
    if form == "jsonl":
        assert lines(out, "*.jsonl") == [document for _, document in documents]
    else:
        rows = [row.asDict() for file in files for row in read_corpus(spark, file, form).collect()]
        assert [(row.pop("time"), row) for row in rows] == documents
    assert lines(out, "dead-letters/*.jsonl") == [
        {"record": b.time, "file": b.file, "reason": b.reason, "value": b.raw or b.text}
        for b in bad
    ]


def test_json_lines_are_an_input_with_the_words_of_the_dump(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits_module, "SPLIT_BYTES_MIN", 16)
    source = dump(tmp_path / "dump.xml.bz2", bad=0)
    make_corpus(spark, source, tmp_path / "out", "jsonl")
    together = tmp_path / "corpus.jsonl"
    files = sorted(tmp_path.glob("out/documents-*.jsonl"))
    together.write_bytes(b"".join(file.read_bytes() for file in files))
    flow = inverted_index()
    outputs = [
        list(run_reference(flow, [[document for _, document in read(found)[0]]]))
        for found in (open_source(together), source)
    ]
    assert outputs[0] == outputs[1]


def test_records_keep_their_ids_and_what_has_no_text_is_set_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = [
        {"id": 5, "text": "a", "title": None, "more": 1},
        {"id": 6},
        {"id": "x", "text": 7},
        {"id": "y", "title": "Б", "text": "b\nc\u2028d"},
    ]
    out = tmp_path / "a [strange] name"
    assert make_corpus(spark, ListSource(records), out, "jsonl") == Made(2, 2)
    assert [json.loads(line) for line in (out / "documents-spark-00000.jsonl").open()] == [
        {"id": 5, "title": "", "text": "a"},
        {"id": "y", "title": "Б", "text": "b\nc\u2028d"},
    ]
    assert [(bad["record"], bad["reason"]) for bad in lines(out, "dead-letters/*")] == [
        (2, "field 'text' is missing"),
        (3, "field 'text' is of type int"),
    ]
    assert statistics(read_corpus(spark, out, "jsonl")).words == 5


def test_a_file_that_breaks_off_is_a_corpus_up_to_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    dump(tmp_path / "whole.xml.bz2", bad=0)
    path = tmp_path / "dump.xml.bz2"
    path.write_bytes((tmp_path / "whole.xml.bz2").read_bytes()[:-20])
    source = open_source(path, sections=True)
    assert make_corpus(spark, source, tmp_path / "out", "jsonl") == Made(80, 1)
    (bad,) = lines(tmp_path / "out", "dead-letters/*")
    assert (bad["record"], bad["file"]) == (81, "dump.xml.bz2")


def test_outputs_that_are_there_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "documents-spark-00000.parquet").write_text("mine")
    with pytest.raises(StateMismatch, match="already holds outputs"):
        make_corpus(spark, ZipfSource(1), tmp_path, "jsonl")
    assert (tmp_path / "documents-spark-00000.parquet").read_text() == "mine"


@pytest.mark.parametrize("exponent", [0.8, 1.1])
def test_the_fit_finds_the_exponent_that_made_the_text(exponent: float) -> None:
    count: Counter[str] = Counter()
    for _, document in read(ZipfSource(500, exponent=exponent))[0]:
        assert isinstance(document, dict)
        count.update(words(document))
    found = fit(sorted(Counter(count.values()).items(), reverse=True))
    assert found is not None
    assert found.exponent == pytest.approx(exponent, abs=0.01)


def test_too_few_words_have_no_exponent() -> None:
    assert fit([]) is None
    assert fit([(100, 1), (9, 50)]) is None
    exact = fit([(1000, 1), (500, 1), (250, 1)])
    assert exact is not None
    assert exact.ranks == 3


def test_the_command_writes_figures_and_a_picture(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sessions, "start", lambda self, what: nullcontext(spark))
    names = ["out", "more/figures.json", "zipf.png", "done.json"]
    out, figures, plot, done = (tmp_path / name for name in names)
    options = ["--input", "zipf:60", "--output", str(out), "--statistics", str(figures)]
    found = CliRunner().invoke(
        command, ["corpus", *options, "--plot", str(plot), "--json", str(done)]
    )
    assert found.exit_code == 0, found.output
    told = json.loads(done.read_text())
    assert {name: told[name] for name in ("documents", "bad_records", "words")} == {
        "documents": 60,
        "bad_records": 0,
        "words": 60 * 280,
    }
    written = json.loads(figures.read_text())
    assert written["most_frequent"][0]["word"] == "w1"
    assert written["zipf_exponent"] == told["zipf_exponent"] == pytest.approx(1.1, abs=0.1)
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--plot=zipf.doc", "must end in one of .png"),
        ("--statistics=/dev/null/figures.json", "cannot write /dev/null/figures.json"),
        ("--format=csv", "'csv' is not one of"),
    ],
)
def test_what_cannot_be_written_is_a_usage_error(option: str, said: str, tmp_path: Path) -> None:
    options = ["--input", "zipf:1", "--output", str(tmp_path / "out"), option]
    found = CliRunner().invoke(command, ["corpus", *options])
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())
