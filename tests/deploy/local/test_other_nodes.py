"""A run resumes with another number of nodes than before, and rescales to it."""

from __future__ import annotations

import json
import select
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from driftline.coordinator.registry import FileRegistry
from tests.deploy.local.command import call
from tests.deploy.local.test_clean_shutdown import RepeatedRun, text


def record(number: int) -> str:
    return json.dumps({"text": text(number)}) + "\n"


class RepeatedFeed:
    """Feeder of one call after another, over standard input."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sent = 0

    def call(self, options: Sequence[str], until: Callable[[], bool]) -> None:
        """Run one call with records until the condition holds, and some records more."""
        command = RepeatedRun(self.directory, "--input", "-", *options)
        process = command.start(subprocess.PIPE)
        assert process.stdin is not None
        for number in range(self.sent):  # the same stream, from its beginning
            process.stdin.write(record(number))
        more = 50
        while more:
            assert process.poll() is None, process.communicate()[1]
            process.stdin.write(record(self.sent))
            process.stdin.flush()
            self.sent += 1
            more -= until()
            select.select((), (), (), 0.005)
        command.await_outputs(process, 3 * self.sent)
        process.send_signal(signal.SIGTERM)
        command.finish(process, 128 + signal.SIGTERM)

    def layout(self) -> tuple[int, ...]:
        state = FileRegistry(self.directory / "out" / ".driftline" / "state" / "registry").read()
        return () if state is None else state.layout


def test_run_rescales_to_the_node_count_of_its_latest_call(tmp_path: Path) -> None:
    feed = RepeatedFeed(tmp_path)
    feed.call(["--nodes", "1"], lambda: True)
    assert feed.layout() == (0,)
    feed.call(["--nodes", "2"], lambda: feed.layout() == (1, 2))
    feed.call([], lambda: True)
    assert feed.layout() == (1, 2)
    found = RepeatedRun(tmp_path).highest_counts()
    assert found == Counter(word for n in range(feed.sent) for word in text(n).split())
    checked = call("verify", tmp_path / "out")
    assert checked.returncode == 0, checked.stdout + checked.stderr
