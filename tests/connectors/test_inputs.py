"""Inputs that a user names, and the source to which each belongs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.connectors.files.files import FileSource, SeveralFiles
from driftline.connectors.guarded import CheckedSource
from driftline.connectors.inputs import Input, PipedInput, open_inputs
from driftline.engine.errors import DriftlineError, FlowError, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.sources.record import RecordFormat
from driftline.engine.sources.source import BadRecord
from driftline.engine.wire.codec import pack


def flow(*sources: str) -> Flow:
    made = Flow("some")
    for name in sources:
        made.source(name).sink(f"{name} out")
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "b.jsonl",
        "a.txt",
        "c.csv.gz",
        "d.bin",
        ".hidden.jsonl",
        "lines=x.txt",
        "[1].txt",
    ):
        (tmp_path / name).write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "e.jsonl").write_text("")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(found: Input) -> list[str]:
    assert isinstance(found, FileSource | SeveralFiles)
    return [file.name for file in (found.files if isinstance(found, SeveralFiles) else [found])]


@pytest.mark.parametrize(
    ("inputs", "files"),
    [
        (["b.jsonl", "a.txt"], ["b.jsonl", "a.txt"]),
        (["*.txt"], ["[1].txt", "a.txt", "lines=x.txt"]),
        (["**/*.jsonl"], ["b.jsonl", "e.jsonl"]),
        (["sub", "[ab].*"], ["e.jsonl", "a.txt", "b.jsonl"]),
        (["."], ["[1].txt", "a.txt", "b.jsonl", "c.csv.gz", "lines=x.txt"]),
        (["[1].txt"], ["[1].txt"]),
        (["./lines=x.txt"], ["lines=x.txt"]),
        (["lines=b.jsonl", "lines=sub"], ["b.jsonl", "e.jsonl"]),
    ],
)
def test_all_inputs_belong_to_the_only_source(
    inputs: list[str], files: list[str], folder: Path
) -> None:
    [found] = open_inputs(flow("lines"), inputs)
    assert names(found) == files


@pytest.mark.parametrize(
    ("sources", "inputs", "error", "expected_text"),
    [
        ("one two", ["a.txt"], FlowError, r"2 sources \(one, two\): give 2 inputs"),
        ("one two", ["one=a.txt"], FlowError, "no input for source two: .* sources one, two"),
        ("one two", ["one=a.txt", "b.jsonl"], FlowError, "b.jsonl does not name a source"),
        ("one", ["on=a.txt"], FlowError, "no source 'on', and no such file; .* the source one"),
        ("one", ["no.txt"], Unavailable, "no.txt: there is no such file"),
        ("one", ["*.nothing"], Unavailable, r"\*.nothing: no file matches this pattern"),
        ("one", ["empty"], Unavailable, "directory empty has no files of a known format"),
        ("one", ["a.txt", "[ab].*"], Unavailable, "a.txt is given twice"),
        ("one", ["a.txt", "-"], Unavailable, "- is not a file: it cannot be one of several inputs"),
        ("one", ["-.csv"], Unavailable, r"-.csv: standard input is JSON lines \(-, -.jsonl\) or"),
        ("one two", ["-", "-"], FlowError, r"standard input \(-\) can be the input of one source"),
    ],
)
def test_invalid_input_error_lists_the_valid_names(
    sources: str, inputs: list[str], error: type[DriftlineError], expected_text: str, folder: Path
) -> None:
    with pytest.raises(error, match=expected_text):
        open_inputs(flow(*sources.split()), inputs)


def test_standard_input_and_tcp_addresses_are_inputs(folder: Path) -> None:
    record_format = RecordFormat(text_field="t")
    found = open_inputs(flow("one", "two"), ["two=-", "one=tcp://*:5555"], record_format)
    assert found == ["tcp://*:5555", PipedInput(record_format)]
    assert open_inputs(flow("one"), ["-.txt"], record_format) == [
        PipedInput(record_format, is_text=True)
    ]
    assert open_inputs(flow("one"), ["-.jsonl"], record_format) == [PipedInput(record_format)]
    with pytest.raises(Unavailable, match="convert standard input to UTF-8"):
        open_inputs(flow("one"), ["-"], RecordFormat(encoding="utf-16"))
    [made_up] = open_inputs(flow("one"), ["zipf:3"])
    assert not isinstance(made_up, str | PipedInput)
    assert made_up.name == "zipf of 3 documents"


def test_skipped_entries_of_a_directory_are_reported(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = folder / "mixed"
    (directory / "older").mkdir(parents=True)
    for name in ("a.txt", "b.jsonl.zst", "c.parquet", ".hidden"):
        (directory / name).write_text("")
    (directory / "d.txt").symlink_to(directory / "gone")
    [found] = open_inputs(flow("lines"), ["mixed"])
    assert names(found) == ["a.txt", "b.jsonl.zst"]
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == (
        "directory mixed: skipped c.parquet (no known format), d.txt (a link to a "
        "file that is missing), older (a directory)"
    )


def test_skipped_matches_of_a_pattern_are_reported(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "x.jsonl").symlink_to(folder / "gone")
    (folder / "y.jsonl").symlink_to("y.jsonl")
    [found] = open_inputs(flow("lines"), ["?.jsonl"])
    assert names(found) == ["b.jsonl"]
    (message,) = [record.getMessage() for record in caplog.records]
    missing = "a link to a file that is missing"
    assert message == f"?.jsonl: skipped x.jsonl ({missing}), y.jsonl ({missing})"
    with pytest.raises(Unavailable, match=r"y\.jsonl"):
        open_inputs(flow("lines"), ["y.jsonl"])


def test_name_that_is_not_utf8_is_an_input(folder: Path) -> None:
    """Its identity is stored in the state of a run, and its name in dead letters."""
    name = os.fsdecode(b"caf\xe9.txt")
    (folder / name).write_text("tea\n")
    [found] = open_inputs(flow("lines"), [name])
    assert isinstance(found, FileSource)
    assert (found.name, pack(found.identity())) == (r"caf\udce9.txt", pack(r"caf\udce9.txt (text)"))
    assert list(found.read(1)) == [(1, {"text": "tea", "id": 1})]


class BrokenSource:
    """User's source that yields the given records, and raises the given exceptions."""

    name = "broken"

    def __init__(self, *yields: object) -> None:
        self.yields = yields

    def read(self, start: int) -> Iterator[Any]:
        for each in self.yields:
            if isinstance(each, BaseException):
                raise each
            yield each

    def progress(self) -> tuple[int, int] | None:
        raise ValueError("only for display")

    def identity(self) -> str:
        return "broken"


class WithoutRepr:
    """An object that cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no repr")


@pytest.mark.parametrize(
    ("yields", "problem"),
    [
        ([(1, "a"), (2, "b", "c")], r"yielded \(2, 'b', 'c'\); give pairs"),
        ([(2, "a"), (1, "b")], "yielded the time 1 after 2"),
        ([(0, "a")], "yielded the time 0 after 0"),
        ([WithoutRepr()], "yielded <a WithoutRepr whose repr raises ValueError>; give pairs"),
        ([(2.0, "a")], r"yielded the time 2\.0 after"),
        ([(2**62, "a")], r"less than 2\*\*62"),
        ([BadRecord(3, "file", "reason", "text"), (3, "b")], "yielded the time 3 after 3"),
        ([BadRecord(3, "file", "reason", b"text")], "BadRecord of time 3"),  # type: ignore[arg-type]
        ([(1, "a"), KeyError("k")], "the source 'broken' raised KeyError: 'k'"),
        ([SystemExit(0)], "the source 'broken' raised SystemExit"),
    ],
)
def test_fault_of_a_source_is_named(yields: list[object], problem: str) -> None:
    source = CheckedSource(BrokenSource(*yields))
    assert source.progress() is None
    with pytest.raises(FlowError, match=problem):
        list(source.read(0))
