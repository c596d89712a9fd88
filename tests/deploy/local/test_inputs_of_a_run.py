"""`driftline run` with several inputs, and with standard input: real processes, real kill -9."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.deploy.local.command import ROOT, WORDCOUNT, call, count_lines, lines
from tests.deploy.local.run_copies import wait_until

JOIN = """
from driftline import Flow

def ordered(context, record):
    yield context.key, record["side"], record["id"]

def joined() -> Flow:
    flow = Flow("join")
    left = flow.source("left").map(lambda r: {**r, "side": "left"})
    right = flow.source("right").map(lambda r: {**r, "side": "right"})
    left.union(right).key_by("key").process(ordered).sink("pairs")
    return flow
"""


def records(path: Path, count: int, first: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = range(first, first + count)
    path.write_text("".join(json.dumps({"text": f"a b{n % 7} c{n}", "key": n % 5}) + "\n"
                            for n in numbers))  # fmt: skip
    return path


def reference(flow: str | Path, folder: Path, *inputs: str | Path) -> list[str]:
    options = [part for each in inputs for part in ("--input", each)]
    done = call("run", flow, *options, "--output", folder / "reference", "--reference")
    assert done.returncode == 0, done.stderr
    return lines(folder / "reference")


def test_files_patterns_and_directories_form_one_stream(tmp_path: Path) -> None:
    records(tmp_path / "logs" / "2.jsonl", 150, 100)
    records(tmp_path / "logs" / "1.jsonl", 100)
    records(tmp_path / "more" / "3.jsonl", 100, 250)
    whole = records(tmp_path / "whole.jsonl", 350)
    run: list[str | Path] = ["run", WORDCOUNT, "--input", tmp_path / "logs" / "*.jsonl"]
    run += ["--input", tmp_path / "more"]
    done = call(*run, "--output", tmp_path / "out", "--nodes", "2")
    assert done.returncode == 0, done.stderr
    assert lines(tmp_path / "out") == reference(WORDCOUNT, tmp_path, whole)
    (tmp_path / "logs" / "1.jsonl").rename(tmp_path / "logs" / "4.jsonl")
    refused = call(*run, "--output", tmp_path / "out", "--nodes", "2")
    assert refused.returncode == 1
    message = "the input of source 'lines' is 2.jsonl (json) instead of 1.jsonl (json)"
    assert message in refused.stderr
    assert "give another --output" in refused.stderr


def test_bad_record_of_a_later_file_is_reported(tmp_path: Path) -> None:
    records(tmp_path / "1.jsonl", 3)
    (tmp_path / "2.jsonl").write_text('{"text": "x"}\n{"text": \n{"text": "y"}\n')
    run: list[str | Path] = ["run", WORDCOUNT, "--input", tmp_path, "--output"]
    done = call(*run, tmp_path / "o1")
    assert done.returncode == 1
    assert "2.jsonl, record 5: malformed JSON" in done.stderr
    assert "it is record 2 of this file" in done.stderr
    assert "run the same command again, or set such records aside" in done.stderr
    assert "--on-error dead-letter" in done.stderr
    done = call(*run, tmp_path / "o2", "--on-error", "dead-letter")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["t"][0] for line in lines(tmp_path / "o2")][-2:] == [4, 6]
    (aside,) = (tmp_path / "o2" / "dead-letters" / "input-0.jsonl").read_text().splitlines()
    assert (json.loads(aside)["record"], json.loads(aside)["file"]) == (5, "2.jsonl")


def test_inputs_are_assigned_to_sources_by_name(tmp_path: Path) -> None:
    join = tmp_path / "join.py"
    join.write_text(JOIN)
    left = records(tmp_path / "l.jsonl", 20)
    right = [records(tmp_path / "r" / f"{n}.jsonl", 10, 10 * n) for n in range(2)]
    expected = reference(join, tmp_path, f"left={left}", f"right={tmp_path / 'r'}")
    assert len(expected) == 40
    named = [f"right={right[0]}", f"left={left}", f"right={right[1]}"]
    options = [part for each in named for part in ("--input", each)]
    done = call("run", f"{join}:joined", *options, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert lines(tmp_path / "out") == expected
    wrong = call("run", join, "--input", f"lift={left}", "--output", tmp_path / "o2")
    assert wrong.returncode == 1
    assert "there is no source 'lift'" in wrong.stderr
    assert "the sources left, right" in wrong.stderr
    assert "Traceback" not in wrong.stderr


class PipedRun:
    """Run whose standard input a test writes in pieces; the test may kill it."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "driftline", *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        self.pipe = self.process.stdin

    def feed(self, data: bytes) -> None:
        self.pipe.write(data)
        self.pipe.flush()

    def await_outputs(self, directory: Path, count: int) -> None:
        wait_until(
            lambda: self.process.poll() is not None or count_lines(directory) >= count, "outputs"
        )
        assert self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> tuple[int, str]:
        _, log_text = self.process.communicate(timeout=300)
        return self.process.returncode, log_text.decode()


@pytest.fixture
def piped_runs() -> Iterator[list[PipedRun]]:
    """Collect the runs of a test, and kill them at its end."""
    made: list[PipedRun] = []
    yield made
    for each in made:
        each.process.kill()
        with suppress(BrokenPipeError, ValueError):
            each.process.communicate()


def test_kill_9_of_a_run_on_standard_input_keeps_exactly_once(
    piped_runs: list[PipedRun], tmp_path: Path
) -> None:
    whole = records(tmp_path / "in.jsonl", 300)
    data = whole.read_bytes()
    run: list[str | Path] = ["run", WORDCOUNT, "--input", "-", "--output", tmp_path / "out"]
    run += ["--nodes", "2", "--snapshot-interval-ms", "50"]
    chance = random.Random(1)
    piped_runs.append(PipedRun(*run))
    piped_runs[-1].feed(data[: chance.randrange(len(data) // 2, len(data))])
    piped_runs[-1].await_outputs(tmp_path / "out", chance.randrange(20, 3 * 120))
    piped_runs[-1].kill()
    changed = run_with_stdin(run, data.replace(b"c3", b"d3"))
    assert changed.returncode == 1
    assert b"of another stream on standard input" in changed.stderr
    piped_runs.append(PipedRun(*run))
    piped_runs[-1].feed(data)
    status, log_text = piped_runs[-1].end()
    assert status == 0, log_text
    assert "of standard input: they are already stored" in log_text
    assert "standard input has ended, after 300 records" in log_text
    expected = reference(WORDCOUNT, tmp_path, whole)
    assert lines(tmp_path / "out") == expected, "records have the same numbers as in a file"
    again = run_with_stdin(run, data)
    assert again.returncode == 0
    warning = b"warning run     standard input is not read: an earlier call has read all its 300"
    assert warning in again.stderr, "standard input may have more records now"
    assert call("verify", tmp_path / "out").returncode == 0


def test_empty_input_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(JOIN)
    (tmp_path / "blank.jsonl").write_text("\n\n")
    run: list[str | Path] = ["run", tmp_path / "flow.py:joined", "--output", tmp_path / "out"]
    run += ["--input", f"left={tmp_path / 'blank.jsonl'}", "--input", "right=-"]
    done = run_with_stdin(run, b"")
    assert done.returncode == 0, done.stderr
    assert b"warning run     blank.jsonl is empty: it has no record" in done.stderr
    assert b"warning run     standard input is empty: it has ended without a record" in done.stderr


def run_with_stdin(arguments: list[str | Path], data: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "driftline", *map(str, arguments)],
        cwd=ROOT, input=data, capture_output=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("command", [["run", "--reference"], ["spark", "run"]])
def test_command_that_reads_only_files_rejects_standard_input(
    command: list[str], tmp_path: Path
) -> None:
    more = ["--output", str(tmp_path / "out")]
    done = call(*command[:2], WORDCOUNT, *command[2:], "--input", "-", *more)
    assert done.returncode == 1
    assert "cannot use standard input, whose records cannot be read again" in done.stderr
    assert "Traceback" not in done.stderr
