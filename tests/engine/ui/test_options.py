"""Options that commands share, and reports in a narrow terminal."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from driftline.engine.errors import Unavailable
from driftline.engine.sources.record import RecordFormat
from driftline.engine.ui import pictures
from driftline.engine.ui.consoles import ProgressView, print_report
from driftline.engine.ui.options import (
    FiniteRange,
    json_option,
    json_option_with,
    on_error_option,
    plot_option,
    reading_options,
)
from driftline.engine.ui.results import write_json


@click.command()
@on_error_option()
@reading_options()
@json_option
@plot_option()
def all_options(
    dead_letters: bool, record_format: RecordFormat, json_file: Path | None, plot: Path | None
) -> None:
    write_json(json_file, {"dead_letters": dead_letters})
    click.echo(f"{dead_letters} {record_format}")


@click.command()
@reading_options(in_sections=True)
def split(record_format: RecordFormat) -> None:
    click.echo(str(record_format))


def output_of(command: click.Command, *arguments: str) -> str:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    return done.output.strip()


def test_file_format_options_are_passed_as_one_shape() -> None:
    assert output_of(all_options) == f"False {RecordFormat()}"
    options = ["--id-field=i", "--text-field=t", "--sections", "--on-error=dead-letter"]
    options += ["--encoding=Latin1", r"--delimiter=\t"]
    assert (
        output_of(all_options, *options)
        == f"True {RecordFormat('i', 't', True, 'latin-1', chr(9))}"
    )
    assert output_of(split) == str(RecordFormat(sections=True))
    assert output_of(split, "--no-sections") == str(RecordFormat())


@pytest.mark.parametrize(
    ("option", "error"),
    [("--encoding=none", "unknown encoding 'none'"), ("--delimiter=;;", "the delimiter is ';;'")],
)
def test_an_unknown_encoding_or_delimiter_is_refused(option: str, error: str) -> None:
    done = CliRunner().invoke(split, [option])
    assert done.exit_code == 2
    assert error in done.output


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "0.5"])
def test_number_must_be_finite_and_within_its_bounds(number: str) -> None:
    @click.command()
    @click.option("--after", type=FiniteRange(1))
    def command(after: float) -> None:
        click.echo(after)

    assert output_of(command, "--after=1.5") == "1.5"
    done = CliRunner().invoke(command, [f"--after={number}"])
    assert done.exit_code == 2
    assert "--after" in done.output


def test_a_result_is_one_line_and_its_folder_is_made(tmp_path: Path) -> None:
    output_of(all_options, f"--json={tmp_path / 'new' / 'r.json'}")
    written = (tmp_path / "new" / "r.json").read_text()
    assert written.count("\n") == 1
    assert json.loads(written) == {"dead_letters": False}


@pytest.mark.parametrize(
    ("option", "expected_text"),
    [
        ("--json=.", "cannot write .: it is a directory"),
        ("--plot=p.doc", "p.doc must end in one of .png, .svg, .pdf"),
        ("--on-error=perhaps", "'perhaps' is not one of"),
    ],
)
def test_unwritable_result_file_is_a_usage_error(option: str, expected_text: str) -> None:
    done = CliRunner().invoke(all_options, [option])
    assert done.exit_code == 2
    assert expected_text in " ".join(done.output.split())


@click.command()
@click.option("--how", default="well")
@json_option_with(ended_by=None)
def job(how: str, json_file: Path | None) -> None:
    match how:
        case "unavailable":
            raise Unavailable("no room")
        case "not found":
            raise FileNotFoundError(2, "No such file", "in.jsonl")
        case "usage":
            raise click.UsageError("not both")
        case "interrupted":
            raise KeyboardInterrupt
    write_json(json_file, {"figure": 1})


@pytest.mark.parametrize(
    ("how", "written"),
    [
        ("unavailable", {"error": "no room", "ended_by": None}),
        ("not found", {"error": "in.jsonl: No such file", "ended_by": None}),
        ("interrupted", None),
        ("well", {"figure": 1}),
    ],
)
def test_failed_command_removes_the_result_of_an_earlier_one(
    tmp_path: Path, how: str, written: dict[str, object] | None
) -> None:
    file, link = tmp_path / "r.json", tmp_path / "link.json"
    link.symlink_to(file)
    output_of(job, f"--json={link}")
    assert json.loads(file.read_text()) == {"figure": 1}
    done = CliRunner().invoke(job, [f"--json={link}", f"--how={how}"])
    assert (done.exit_code == 0) == (how == "well")
    assert (json.loads(file.read_text()) if file.exists() else None) == written
    assert link.is_symlink()


def test_failed_command_does_not_remove_a_named_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    CliRunner().invoke(job, [f"--json={pipe}", "--how=usage"])
    assert pipe.is_fifo()


def test_a_report_is_one_line_however_narrow_the_console() -> None:
    out = StringIO()
    print_report(
        Console(file=out, width=10), {"records": 12, "bad_records": 0, "records_per_s": 1.5}
    )
    assert out.getvalue() == "12 records, 0 bad records, 1.5 records per s\n"


def test_figures_are_visible_in_a_narrow_terminal() -> None:
    out = StringIO()
    view = ProgressView(Console(file=out, width=40, force_terminal=True), [])
    with view:
        view.show_line(f"12 records, 12 outputs, lag 7.0 s, p50 2.1 ms; {'waiting ' * 9}at last")
    for figure in ("12 outputs,", "7.0", "2.1", "at last"):
        assert figure in out.getvalue()


def test_error_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'driftline\[bench\]'"):
        pictures.check_matplotlib()
