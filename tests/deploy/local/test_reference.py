"""`driftline run --reference` logs dead letters and bad records as a run does."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.connectors.files import open_source
from driftline.deploy.local.reference import run_reference_to
from driftline.engine.flow.flow import Flow

RECORDS = 40
FLOW = (
    "from driftline import Flow\n"
    "flow = Flow('failing')\n"
    "flow.source('lines').map(lambda r: 1 // (r['n'] % 2), name='divide').sink('results')\n"
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Write an input in which one record is malformed; every second element of the others fails."""
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(RECORDS)) + "no record\n")
    return path


def flow() -> Flow:
    names: dict[str, Flow] = {}
    exec(FLOW, names)
    return names["flow"]


def test_dead_letters_are_logged_at_once_then_rate_limited_then_at_the_end(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "out"
    done = run_reference_to(flow(), [open_source(source)], output, dead_letters=True)
    half = RECORDS // 2
    assert (done.records, done.outputs, done.bad_records, done.dead_letters) == (
        RECORDS, half, 1, half,
    )  # fmt: skip
    bad, first, rest = caplog.messages
    letters = output / "dead-letters"
    assert bad.startswith("1 bad record: ")
    assert bad.endswith(f"; set aside in {letters / 'input-0.jsonl'}")
    assert first.startswith("1 dead letter: operator 'divide'")
    assert rest.startswith(f"{RECORDS // 2 - 1} more dead letters: ")
    assert "the last one: operator 'divide' failed at record 39 of input 0: ZeroDivis" in rest
    assert len((letters / "reference.jsonl").read_text().splitlines()) == RECORDS // 2


@pytest.mark.parametrize("name", ["../x", "/abs", "a/b", "..", "[ab]*"])
def test_sink_name_becomes_one_file_name(source: Path, tmp_path: Path, name: str) -> None:
    named = Flow("named")
    named.source("lines").sink(name)
    output = tmp_path / "outer" / "out"
    output.mkdir(parents=True)
    (output / "a.jsonl").touch()
    run_reference_to(named, [open_source(source)], output, dead_letters=True)
    [file] = {*output.glob("*.jsonl")} - {output / "a.jsonl"}
    assert len(file.read_text().splitlines()) == RECORDS
    assert [*output.parent.iterdir()] == [output]
