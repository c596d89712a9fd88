"""A run with dead letters that puts nothing out, as nothing that it read was good, says so."""

from __future__ import annotations

import logging

import pytest

from driftline import Flow, run


@pytest.mark.parametrize(
    ("records", "warns"), [([0, 0], True), ([0, 1], False), ([], False), ([-1, 0], False)]
)
def test_a_run_in_this_process_warns_only_if_nothing_was_good(
    records: list[int], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "driftline")
    flow = Flow("divided")
    flow.source("numbers").map(lambda n: 1 // n).filter(lambda n: n > 0).sink()
    run(flow, [records], [], dead_letters=True)
    assert ("there is no output" in caplog.text) == warns
