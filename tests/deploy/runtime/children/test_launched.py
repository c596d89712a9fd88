"""A child does not end by a signal for the whole group, as a terminal or systemd sends it."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress

import pytest

from driftline.deploy.runtime.children import child
from driftline.deploy.runtime.children.launched import deaf_to_interrupts

END_S = 30.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_child_that_is_just_starting_takes_no_notice_of_a_signal(number: signal.Signals) -> None:
    with deaf_to_interrupts():
        process = subprocess.Popen(
            child.command("json.tool"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    process.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(number)
    said, _ = process.communicate("[]", timeout=END_S)
    assert (process.returncode, said) == (0, "[]\n")


def test_this_process_hears_of_signals_all_the_same() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
    try:
        with deaf_to_interrupts():
            signal.raise_signal(signal.SIGHUP)
            assert not heard
        assert heard == [signal.SIGHUP]
    finally:
        signal.signal(signal.SIGHUP, before)
