"""A story has the events of Driftline alone, by the clock of meters, and gives the log back."""

import json
import logging
from datetime import UTC, datetime
from time import perf_counter

import pytest

from driftline.bench.measuring.story import Story
from driftline.engine.events import about, log


def test_events_are_told_by_name_from_a_time_on(caplog: pytest.LogCaptureFixture) -> None:
    level = log.level
    with Story() as story:
        log.info("first", extra=about("load"))
        between = perf_counter()
        log.info("second", extra=about("running"))
        log.debug("nobody wants this", extra=about("load"))
        log.warning("third", extra=about("load"))
        logging.getLogger("of.the.user").warning("load")
    assert len(story.times("load", 0.0)) == 2
    [after] = story.times("load", between)
    assert between - 0.05 < after <= perf_counter() + 0.05
    assert story.times("running", between) < [after]
    assert (log.level, log.propagate) == (level, True)
    log.warning("as before")
    assert caplog.messages == ["load", "as before"]


def test_lines_of_other_processes_are_told_by_the_same_clock() -> None:
    before = perf_counter()
    line = json.dumps({"time": datetime.now(UTC).isoformat(), "event": "running"})
    with Story() as story:
        story.hear([line])
        story.hear([line])  # once more, as a reader of files does
    [at] = story.times("running", 0.0)
    assert before - 0.05 < at <= perf_counter() + 0.05
