"""An input file grows, or is repaired, between two calls of the same command: real kills.

Records that the run has used must not change; the run verifies them. It reads all others as they
are now.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

from tests.deploy.local.command import ROOT, WORDCOUNT, call, count_lines, lines
from tests.deploy.local.run_copies import wait_until
from tests.deploy.local.test_inputs_of_a_run import JOIN, records, reference

Command = list[str | Path]


def command(folder: Path, *inputs: str | Path, flow: str | Path = WORDCOUNT) -> Command:
    options = [part for each in inputs for part in ("--input", each)]
    return ["run", flow, *options, "--output", folder / "out"]


def finish(run: Command, *more: str) -> None:
    done = call(*run, *more)
    assert done.returncode == 0, done.stderr


def check_rejected(run: Command, *expected_texts: str) -> None:
    """Check that the command fails with these messages and that outputs do not change."""
    before = lines(Path(run[run.index("--output") + 1]))
    done = call(*run)
    assert done.returncode == 1, done.stderr
    for words in expected_texts:
        assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert lines(Path(run[run.index("--output") + 1])) == before


def kill_after(run: Command, wanted: int, *more: str) -> None:
    """Kill all processes of a run once it has at least `wanted` outputs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "driftline", *map(str, run), "--max-in-flight", "1", *more],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    try:
        output = Path(run[run.index("--output") + 1])
        wait_until(lambda: process.poll() is not None or count_lines(output) >= wanted, "outputs")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def change(path: Path, number: int, line: str) -> None:
    """Replace a line; lines count from 1."""
    found = path.read_text().splitlines(keepends=True)
    found[number - 1] = line + "\n"
    path.write_text("".join(found))


def test_run_resumes_after_its_last_line_was_completed(tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("to be\nor not to")
    run = command(tmp_path, source)
    finish(run)
    before = lines(tmp_path / "out")
    assert len(before) == 5
    append(source, "day\nthat is\n")
    done = call(*run)
    assert done.returncode == 0, done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert f"record 2 of {source} was a line without a newline" in warning
    assert "'or not to', and has been completed since: 'or not today'" in warning
    assert "--fresh" in warning
    after = lines(tmp_path / "out")
    assert after[:5] == before
    assert [json.loads(line)["t"][0] for line in after[5:]] == [3, 3]
    source.write_text("to be\n")
    check_rejected(run, "in.txt: it has only 1 record now, but this run has used 3", "--fresh")


def test_broken_input_file_fails_the_run_until_it_is_repaired(tmp_path: Path) -> None:
    for number in range(4):
        records(tmp_path / "in" / f"{number}.jsonl", 20, 20 * number)
    whole = gzip.compress((tmp_path / "in" / "1.jsonl").read_bytes())
    (tmp_path / "in" / "1.jsonl").unlink()
    broken = tmp_path / "in" / "1.jsonl.gz"
    broken.write_bytes(whole[:-20])
    run = [*command(tmp_path, tmp_path / "in"), "--on-error", "dead-letter"]
    done = call(*run)
    assert done.returncode == 1
    assert "1.jsonl.gz, record " in done.stderr
    assert "ends too early" in done.stderr
    assert "the files after it are not read (2.jsonl, 3.jsonl)" in done.stderr
    assert "dead-letter" not in done.stderr, "a repetition cannot help"
    before = lines(tmp_path / "out")
    assert len(before) >= 20
    output = call("verify", tmp_path / "out").stdout
    assert "failed before the end of the input" in output
    assert "1.jsonl.gz" in output
    broken.write_bytes(whole)
    finish(run)
    found = lines(tmp_path / "out")
    assert found[: len(before)] == before
    assert found == reference(WORDCOUNT, tmp_path, tmp_path / "in")


def test_killed_run_resumes_in_a_later_file_of_a_grown_directory(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for number in range(3):
        records(folder / f"{number}.jsonl", 100, number * 100)
    run = command(tmp_path, folder)
    kill_after(run, 3 * 130, "--snapshot-interval-ms", "20")
    append(folder / "2.jsonl", records(tmp_path / "more", 50, 300).read_text())
    records(folder / "3.jsonl", 50, 350)
    finish(run)
    assert lines(tmp_path / "out") == reference(WORDCOUNT, tmp_path, folder)
    whole = (folder / "1.jsonl").read_text()
    append(folder / "1.jsonl", '{"text": "new"}\n')
    check_rejected(run, "0.jsonl and 3 more: of the first 400 records", "some have changed")
    (folder / "1.jsonl").write_text(whole)
    (folder / "0.jsonl").rename(folder / "00.jsonl")
    check_rejected(run, "the input of source 'lines' is 00.jsonl (json) instead of 0.jsonl (json)")


TORN = '{"text": "to'
MENDED = ' be"}\n{"text": "or not"}\n'


def bad_records(folder: Path) -> list[int]:
    file = folder / "out" / "dead-letters" / "input-0.jsonl"
    return [json.loads(line)["record"] for line in file.read_text().splitlines()]


def test_completed_record_replaces_its_dead_letter_only_on_the_last_line(tmp_path: Path) -> None:
    """Any other bad record that was set aside counts as used."""
    source = records(tmp_path / "in.jsonl", 100)
    change(source, 50, TORN)
    append(source, TORN)
    run = [*command(tmp_path, source), "--on-error", "dead-letter"]
    finish(run)
    assert bad_records(tmp_path) == [50, 101]
    append(source, MENDED)
    finish(run)
    assert bad_records(tmp_path) == [50]
    assert [json.loads(line)["t"][0] for line in lines(tmp_path / "out")[-4:]] == [
        101,
        101,
        102,
        102,
    ]
    change(source, 50, TORN + MENDED.partition("\n")[0])
    check_rejected(run, "have changed", "set aside", "input-0.jsonl", "append it to the end")


def test_longer_of_two_inputs_may_grow(tmp_path: Path) -> None:
    flow = tmp_path / "join.py"
    flow.write_text(JOIN)
    left, right = records(tmp_path / "l.jsonl", 10), records(tmp_path / "r.jsonl", 50)
    run = command(tmp_path, f"left={left}", f"right={right}", flow=flow)
    finish(run)
    text = left.read_text()
    append(left, text)
    check_rejected(
        run,
        "l.jsonl: this run has read the input to its end, record 10, and has delivered outputs ",
        "record 11",
    )
    left.write_text(text)
    append(right, records(tmp_path / "more", 20, 50).read_text())
    finish(run)
    expected = reference(run[1], tmp_path, f"left={left}", f"right={right}")
    assert lines(tmp_path / "out") == expected
