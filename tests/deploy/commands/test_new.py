"""`driftline new`: the project that it writes passes all checks, and its commands work."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from driftline.deploy.commands.new import new
from driftline.engine.errors import Unavailable

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent


def run_in(folder: Path, *command: str) -> str:
    """Run a command in a folder, as a user does, and check that it succeeds."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    found = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Create a project; return its folder and the output of the command."""
    folder = tmp_path_factory.mktemp("new")
    return folder, run_in(folder, sys.executable, "-m", "driftline", "new", "word-counts.2")


def test_new_writes_flow_test_and_input_and_prints_five_lines(project: tuple[Path, str]) -> None:
    folder, output = project
    files = {"word_counts_2.py", "test_word_counts_2.py", "sample.jsonl", "README.md"}
    assert {path.name for path in (folder / "word_counts_2").iterdir()} == files
    assert all(f"word_counts_2/{name}: " in output for name in files)
    assert len((folder / "word_counts_2" / "README.md").read_text().splitlines()) == 5


def test_project_passes_the_linter(project: tuple[Path, str]) -> None:
    """The type checker checks the project in `tests/typing`."""
    folder = project[0] / "word_counts_2"
    run_in(folder, str(BIN / "ruff"), "check", "--isolated", ".")
    run_in(folder, str(BIN / "ruff"), "format", "--isolated", "--check", ".")
    run_in(folder.parent, str(BIN / "ruff"), "check", "--isolated", "word_counts_2")


def test_printed_commands_work(project: tuple[Path, str]) -> None:
    folder, printed = project
    run, test = (shlex.split(line) for line in printed.splitlines() if line.startswith("  "))
    assert (run[0], test[:3]) == ("driftline", ["python", "-m", "pytest"])
    run_in(folder, sys.executable, "-m", *run)
    assert "2 passed" in run_in(folder, sys.executable, *test[1:], "-p", "no:cacheprovider")
    [output] = (folder / "word_counts_2" / "out").glob("counts-*.jsonl")
    values = [json.loads(line)["value"] for line in output.read_text().splitlines()]
    assert values[0] == {"word": "the", "count": 1}
    assert values[-1] == {"word": "ship", "count": 2}
    assert len(values) == 12


def test_readme_commands_work(project: tuple[Path, str]) -> None:
    folder = project[0] / "word_counts_2"
    named = (folder / "README.md").read_text().split("`")[1::2]
    commands = [shlex.split(text) for text in named if text.startswith("driftline ")]
    assert [command[1] for command in commands] == ["run", "simulate", "graph"]
    commands[1] += ["--seeds", "3"]
    for command in commands:
        run_in(folder, sys.executable, "-m", *command)
    assert list((folder / "out").glob("counts-*.jsonl"))


def test_new_does_not_overwrite_existing_files(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert CliRunner().invoke(new, [str(folder)]).exit_code == 0
    (folder / "mine.py").write_text("# my work\n")
    (folder / "sample.jsonl").unlink()
    again = CliRunner().invoke(new, [str(folder)])
    assert isinstance(again.exception, Unavailable)
    assert "already exists" in str(again.exception)
    assert (folder / "mine.py").read_text() == "# my work\n"
    assert not (folder / "sample.jsonl").exists()
    (tmp_path / "file").write_text("")
    assert isinstance(CliRunner().invoke(new, [str(tmp_path / "file")]).exception, Unavailable)


@pytest.mark.parametrize("name", ["2day", "!!!", ".", "", "class", "json", "driftline", "a/json"])
def test_name_that_is_not_a_module_name_is_rejected(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(new, [name])
    assert refused.exit_code == 2, refused.output
    assert "name" in refused.output.lower()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "module"), [("Ünïcode", "Ünïcode"), ("a b'c\"{d}", "a_b_c_d_"), ("_x", "_x")]
)
def test_unusual_names_become_module_names(name: str, module: str, tmp_path: Path) -> None:
    assert CliRunner().invoke(new, [str(tmp_path / name)]).exit_code == 0
    assert run_in(tmp_path, sys.executable, f"{module}/{module}.py") == ""


def test_new_requires_the_current_version(tmp_path: Path) -> None:
    [line] = [
        line for line in (ROOT / "pyproject.toml").read_text().splitlines() if "version =" in line
    ][:1]
    output = run_in(tmp_path, sys.executable, "-m", "driftline", "--version")
    assert output == f"driftline {line.split(chr(34))[1]}\n"
