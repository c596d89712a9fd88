"""A state knows where its outputs are: a mistyped --output is told, and nothing is removed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.deploy.local.run_copies import FLOW
from tests.deploy.local.test_run_command import driftline


class Folder:
    """A folder with an input, and what its run and others have left there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "in.txt").write_text("a b a\n")

    def run(self, output: str, *more: str) -> subprocess.CompletedProcess[str]:
        return driftline(
            "run", FLOW, "--input", self.path / "in.txt", "--output", self.path / output,
            "--state", self.path / "st", *more,
        )  # fmt: skip

    def refuse(self, output: str, *more: str) -> str:
        """What the command says; it has changed no file but empty ones."""
        before = self.files()
        done = self.run(output, *more)
        assert done.returncode == 1, done.stderr
        assert self.files() == before
        return done.stderr

    def files(self) -> dict[str, bytes]:
        paths = [path for path in self.path.rglob("*") if path.is_file()]
        found = {str(path): path.read_bytes() for path in paths if ".lock" not in path.name}
        return {name: data for name, data in found.items() if not name.endswith("lock.mdb")}

    def outputs(self, output: str) -> int:
        return sum(len(file.read_text().splitlines()) for file in (self.path / output).glob("*.j*"))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    done = made.run("o")
    assert done.returncode == 0, done.stderr
    assert made.outputs("o") == 3
    return made


def test_another_output_is_refused_with_that_of_the_state(folder: Folder) -> None:
    right = folder.path / "o"
    for more in ([], ["--fresh"], ["--accept-changed-code"]):
        said = folder.refuse("o2", *more)
        assert f"are in {right}" in said
        assert f"--output {right}" in said
        assert "it has been there" not in said
    (folder.path / "in.txt").write_text("a b a\nc\n")
    assert folder.run("o").returncode == 0, "what the words say"
    assert folder.outputs("o") == 4
    assert folder.run("o2", "--state", str(folder.path / "st2")).returncode == 0, "the other way"
    assert folder.outputs("o2") == 4
    assert f"--output {right}" in folder.refuse("o2"), "outputs of another run are there"


def test_outputs_may_be_moved(folder: Folder) -> None:
    (folder.path / "o").rename(folder.path / "moved")
    said = folder.refuse("o2")
    assert f"were last in {folder.path / 'o'}" in said
    assert folder.run("moved").returncode == 0
    assert f"--output {folder.path / 'moved'}" in folder.refuse("o2")


def test_verify_names_them_too(folder: Folder) -> None:
    (folder.path / "o2").mkdir()
    done = driftline(
        "verify", folder.path / "o2", "--state", folder.path / "st",
        "--json", folder.path / "report",
    )  # fmt: skip
    assert done.returncode == 1
    [problem] = json.loads((folder.path / "report").read_text())["problems"]
    assert f"are in {folder.path / 'o'}" in problem


def test_without_the_registry_fresh_is_named_only_where_it_works(folder: Folder) -> None:
    (folder.path / "st" / "registry").unlink()
    said = folder.refuse("o")
    assert "give the --state of these outputs, or another --output" in said
    assert "--fresh" not in said
