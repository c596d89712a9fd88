"""A state directory records its output directory: a mistyped --output is an error.

No file is removed.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.deploy.local.command import WORDCOUNT, call


class Folder:
    """Folder with an input, and the files of its run and of others."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "in.txt").write_text("a b a\n")

    def run(self, output: str, *more: str) -> subprocess.CompletedProcess[str]:
        return call(
            "run", WORDCOUNT, "--input", self.path / "in.txt", "--output", self.path / output,
            "--state", self.path / "st", *more,
        )  # fmt: skip

    def error_of(self, output: str, *more: str) -> str:
        """Return the error of the command; check that it changes only empty files."""
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


def test_mistyped_output_directory_is_rejected(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.run("o").returncode == 0
    assert folder.outputs("o") == 3
    right = folder.path / "o"
    error = folder.error_of("o2", "--fresh")
    assert f"but in {right}" in error
    assert f"--output {right}" in error
    (folder.path / "o2").mkdir(exist_ok=True)
    done = call(
        "verify", folder.path / "o2", "--state", folder.path / "st",
        "--json", folder.path / "report",
    )  # fmt: skip
    assert done.returncode == 1
    [problem] = json.loads((folder.path / "report").read_text())["problems"]
    assert f"(they were last in {right})" in problem

    (folder.path / "in.txt").write_text("a b a\nc\n")
    right.rename(folder.path / "moved")
    assert f"were last in {right}" in folder.error_of("o3")
    assert folder.run("moved").returncode == 0, "outputs may be moved"
    assert folder.outputs("moved") == 4
    (folder.path / "st" / "registry").unlink()
    error = folder.error_of("moved")
    assert "give the --state of these outputs, or another --output" in error
    assert "--fresh" not in error, "--fresh is suggested only where it works"


def test_directory_that_cannot_hold_a_run_is_rejected(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    for output, reason in {
        "st": "st cannot hold both the outputs and the state of a run",
        os.fsdecode(b"o\xff"): r"o\udcff' is not UTF-8: rename it, or give another",
        "loop": "loop: File exists",
    }.items():
        done = folder.run(output)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False)
        assert reason in done.stderr
