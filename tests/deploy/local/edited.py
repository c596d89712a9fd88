"""Run whose flow is edited between two starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.deploy.local.command import ROOT, call
from tests.deploy.local.run_copies import kill, stop, wait_until

FLOW = """
from driftline import Flow, ValueState

def count(record, n):
    n.set(n.get(0) + 1)
    return {version!r}, record["key"], n.get()

flow = Flow("edited")
stream = flow.source("records").map(lambda record: record, name="same")
stream.key_by("key").scan(count, ValueState("n"), name="count"{more}).sink("out")
"""

RECORDS = 600
KEYS = 7


class EditedRun:
    """Run with two nodes in its own folder, whose flow the test edits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = (json.dumps({"key": f"k{i % KEYS}"}) for i in range(RECORDS))
        (folder / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
        self.edit("old")

    def edit(self, version: str, more: str = "") -> None:
        (self.folder / "flow.py").write_text(FLOW.format(version=version, more=more))

    def command(self, *more: str) -> list[str]:
        return [
            "run", str(self.folder / "flow.py"), "--input", str(self.folder / "in.jsonl"),
            "--output", str(self.folder / "out"), "--nodes", "2",
            "--snapshot-interval-ms", "60", *more,
        ]  # fmt: skip

    def start(self, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "driftline", *self.command(*more)],
            cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def end(self, *more: str) -> tuple[int, str]:
        """Run to the end; return the exit status and the log."""
        done = call(*self.command(*more))
        return done.returncode, done.stderr

    def interrupt(self, version: str, outputs: int, *more: str) -> None:
        """Run until a version has made enough outputs, then kill all processes at once."""
        process = self.start("--max-in-flight", "1", *more)
        try:
            wait_until(
                lambda: process.poll() is not None or self.count(version) > outputs,
                f"outputs of {version}",
            )
            assert process.poll() is None
            stop(process)
        finally:
            kill(process)

    def count(self, version: str) -> int:
        """Return the number of outputs of a version."""
        files = (self.folder / "out").glob("*.jsonl")
        return sum(file.read_text().count(f'"{version}"') for file in files)

    def values(self, file: str = "*") -> list[tuple[str, str, int]]:
        """Return the values of complete lines, in the order of each file."""
        texts = [path.read_text() for path in sorted((self.folder / "out").glob(f"{file}.jsonl"))]
        lines = [line for text in texts for line in text[: text.rfind("\n") + 1].splitlines()]
        return [tuple(json.loads(line)["value"]) for line in lines]

    def versions(self) -> list[str]:
        return [version for version, *_ in self.values()]

    def check(self) -> None:
        """Check that no output or state is lost, and that no output is duplicated."""
        counted = sorted((key, n) for _, key, n in self.values())
        each = {f"k{k}": len(range(k, RECORDS, KEYS)) for k in range(KEYS)}
        assert counted == sorted((key, n + 1) for key, most in each.items() for n in range(most))
        for file in ("out-0", "out-1"):
            versions = [version for version, *_ in self.values(file)]
            assert versions == sorted(versions, key=["old", "newer", "newest"].index)
