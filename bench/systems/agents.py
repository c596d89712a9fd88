"""Agents of a cluster on this machine, each a process with a directory of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from driftline.deploy.host.children import child
from driftline.deploy.host.children.lifeline import Lifeline, tied


class Agent:
    """An agent with one role, `kind`. When its parent ends, the kernel ends it."""

    def __init__(self, kind: str, host: str, directory: Path, zookeeper: str, slots: int) -> None:
        self.kind = kind
        self.name = f"{kind}-{host}"
        self._directory = directory / self.name
        self._arguments = (
            *("agent", "--roles", kind, "--slots", slots, "--zookeeper", zookeeper),
            *("--name", self.name, "--state", self._directory),
            *("--log-json", "--log-level", "debug"),  # so that it tells of spares
        )
        self._lifeline: Lifeline | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, on the directory that it has."""
        self.ended()
        self._lifeline = Lifeline()
        command = tied(self._lifeline.fd, child.command("driftline", *self._arguments))
        with self._directory.with_suffix(".out").open("ab") as said:
            self._process = subprocess.Popen(
                command,
                env=child.environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[self._lifeline.fd],
                start_new_session=True,  # Ctrl-C is for the parent
            )
        self._lifeline.started()

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def ended(self) -> None:
        """Wait for the end of one that was killed."""
        if self._process is not None:
            self._process.wait()
        if self._lifeline is not None:
            self._lifeline.cut()
            self._lifeline = None

    @property
    def processes(self) -> list[psutil.Process]:
        """Itself, first, and all that it has started and that runs."""
        if self._process is None:
            return []
        try:
            mine = psutil.Process(self._process.pid)
            return [mine, *mine.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def pid_of(self, field: str, value: str) -> int | None:
        """The process of a flow whose configuration has this; None if there is none."""
        for each in self.processes[1:]:
            try:
                told = json.loads(each.cmdline()[-1])
            except (ValueError, IndexError, psutil.NoSuchProcess):
                continue
            if isinstance(told, dict) and told.get(field) == value:
                return int(each.pid)
        return None

    def log_lines(self) -> Iterator[str]:
        """What it and its processes have said."""
        for line in self._directory.with_suffix(".out").read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # else it is being written
                yield line

    @property
    def said(self) -> str:
        """The last of what it has said, for people."""
        try:
            return self._directory.with_suffix(".out").read_text()[-2000:]
        except OSError:
            return ""
