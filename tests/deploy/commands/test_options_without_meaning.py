"""Options that would have no effect are rejected by name before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import driftline
from driftline.deploy.commands.run import run
from driftline.simulation.command import simulate

FLOW = "driftline.simulation.scenarios.flows:concatenation"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--nodes", "5", "--kill-every", "1"], ["--nodes", "--kill-every"]),
        (["--policy", "two-phase", "--max-in-flight", "100"], ["--policy", "--max-in-flight"]),
        (["--nodes", "1"], ["--nodes"]),  # on the command line, though with the default value
        (["--fresh", "--from-savepoint", "x"], ["--fresh", "--from-savepoint"]),
        (["--state", "x", "--let-anyone-send"], ["--state", "--let-anyone-send"]),
    ],
)
def test_reference_rejects_unsupported_options(
    options: list[str], named: list[str], tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n")
    arguments = [FLOW, "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out")]
    refused = CliRunner().invoke(run, [*arguments, "--reference", *options])
    assert refused.exit_code == 2
    for name in named:
        assert name in refused.stderr
    assert "--reference" in refused.stderr
    assert not (tmp_path / "out").exists()


def test_reference_accepts_supported_options(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 1, "key": "a", "text": "b"}\nbad\n')
    arguments = [FLOW, "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out")]
    options = ["--reference", "--on-error", "dead-letter", "--id-field", "id", "--log-json"]
    done = CliRunner().invoke(run, [*arguments, *options, "--json", str(tmp_path / "report.json")])
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", FLOW, "--input", "", "--output", "out"], "'--input'"),
        (["run", FLOW, "--input", "records=", "--output", "out"], "--input records="),
        (["run", FLOW, "--input", "-", "--output", ""], "'--output'"),
        (["run", FLOW, "--input", "-", "--output", "out", "--state", ""], "'--state'"),
        (["verify", ""], "'DIRECTORY|NAME'"),
        (["spark", "run", FLOW, "--input", "in.jsonl", "--output", ""], "'--output'"),
    ],
)
def test_empty_path_option_is_rejected(
    arguments: list[str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["driftline", *arguments])
    assert driftline._status() in (1, 2)
    error = capsys.readouterr().err
    assert named in error
    assert "empty" in error
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--seed", "1", "--seeds", "3"], ["--seeds", "--seed"]),
        (["--seed", "1", "--first", "3"], ["--first", "--seed"]),
        (["--seeds", "1", "--text-field", "text"], ["--text-field", "--input"]),
        (["--seeds", "1", "--on-error", "dead-letter"], ["--on-error", "--input"]),
    ],
)
def test_simulate_rejects_options_without_effect(options: list[str], named: list[str]) -> None:
    refused = CliRunner().invoke(simulate, [FLOW, *options])
    assert refused.exit_code == 2
    for name in named:
        assert name in refused.stderr
