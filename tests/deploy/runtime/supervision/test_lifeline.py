"""A foreign program ends with its parent, whenever the parent exits."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from driftline.deploy.runtime.supervision.lifeline import ORPHANED, Lifeline, wrap_command

EXIT_TIMEOUT_S = 30.0

STARTED = "echo started; exec sleep 1000"


@contextmanager
def child(lifeline: Lifeline) -> Iterator[subprocess.Popen[str]]:
    command = wrap_command(lifeline.fd, ["/bin/sh", "-c", STARTED])
    with subprocess.Popen(
        command, pass_fds=[lifeline.fd], stdout=subprocess.PIPE, text=True
    ) as process:
        lifeline.on_child_started()
        try:
            yield process
        finally:
            process.kill()


def test_kernel_kills_a_program_whose_parent_has_exited() -> None:
    lifeline = Lifeline()
    with child(lifeline) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        lifeline.cut()
        assert process.wait(EXIT_TIMEOUT_S) == -signal.SIGKILL


def test_program_whose_parent_has_already_exited_does_not_start() -> None:
    lifeline = Lifeline()
    lifeline.cut()
    with child(lifeline) as process:
        assert process.wait(EXIT_TIMEOUT_S) == ORPHANED
        assert process.stdout is not None
        assert process.stdout.read() == ""
