"""The front at the end of its source: which times it passes, and what it notes as used."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from driftline.deploy.parties.front import Front
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.labels import INFINITY
from driftline.engine.policy import policy
from driftline.engine.sources import BadRecord, ListSource
from driftline.engine.sources.used import CheckedSource, StoreUsed, Used
from driftline.engine.wire.messages import (
    AskUsed,
    BeginEpoch,
    Committed,
    Failed,
    Frame,
    Header,
    Message,
    Prepared,
    Promise,
    Start,
    UsedBelow,
    decode,
    encode,
)

FLOW = Flow("front")
FLOW.source("in").sink()


class Talk:
    """A front that was started, and its master."""

    def __init__(self, records: list[object], mode: str, *, keeps_bad: bool) -> None:
        self.aside: list[BadRecord] = []
        self.front = Front(
            0, 1, plan(FLOW), policy(mode), CheckedSource(ListSource(records)), lambda: 1,
            on_bad=self.set_aside if keeps_bad else None,
        )  # fmt: skip
        self.number = 0
        self.front.receive(encode(Header("master", 1, 0), Start(1, 1, ())))

    def set_aside(self, records: Sequence[BadRecord]) -> None:
        self.aside += records

    def tell(self, message: Message) -> None:
        self.number += 1
        self.front.receive(encode(Header("master", 1, self.number), message))

    def said(self) -> list[Message]:
        while self.front.turn():
            pass
        outbox, self.front.outbox = self.front.outbox, []
        return [decode(data)[1] for _, data in outbox]


def bad(time: int) -> BadRecord:
    return BadRecord(time, "a file", "torn", "{")


def passed(said: list[Message]) -> list[int]:
    """The times up to which the front has promised to have sent all, but for its end."""
    times = [message.until for message in said if isinstance(message, Promise)]
    times += [message.covers[1] for message in said if isinstance(message, Frame)]
    return [time for time in times if time < INFINITY]


@pytest.mark.parametrize("mode", ["exactly-once", "two-phase"])
def test_a_bad_record_that_ends_the_run_is_not_passed(mode: str) -> None:
    talk = Talk(["a", "b", bad(3), "d"], mode, keeps_bad=False)
    said = talk.said()
    assert [message.error for message in said if isinstance(message, Failed)] == ["InputError"]
    assert max(passed(said)) == 3
    assert not [message for message in said if isinstance(message, Promise) and message.until > 3]


@pytest.mark.parametrize("last", ["good", "bad"])
def test_a_bad_record_is_passed_with_the_next_good_one(last: str) -> None:
    records = ["a", bad(2), *(["c"] if last == "good" else [])]
    talk = Talk(records, "exactly-once", keeps_bad=True)
    said = talk.said()
    assert [record.time for record in talk.aside] == [2]
    assert max(passed(said)) == (4 if last == "good" else 2)
    ends = [message for message in said if isinstance(message, Promise)]
    assert ends[-1].until == INFINITY


def test_after_its_end_an_epoch_goes_on_where_the_source_may_grow() -> None:
    talk = Talk(["a", "b"], "two-phase", keeps_bad=False)
    talk.said()
    talk.tell(BeginEpoch(1))
    assert [m.offset for m in talk.said() if isinstance(m, Prepared)] == [3]


def test_what_a_snapshot_is_made_of_is_noted() -> None:
    talk = Talk(["a", "b", "c"], "exactly-once", keeps_bad=False)
    talk.said()
    talk.tell(Committed(1, 0, 0, 3))
    (job,) = talk.front.jobs
    assert isinstance(job, StoreUsed)
    CheckedSource(ListSource(["a", "b", "x", "y"]), job.used).check(3)
    assert (job.used.until, job.used.last) == (3, 2)
    again = Talk(["a"], "none", keeps_bad=False)
    again.said()
    again.tell(Committed(1, 0, 0, 2))
    assert again.front.jobs == [], "without replay every call reads all"


def test_who_asks_is_told_what_a_snapshot_was_made_of() -> None:
    talk = Talk(["a", "b", "c"], "exactly-once", keeps_bad=False)
    ask = encode(Header("watch-savepoint", 0, 0), AskUsed("ipc://there", 3))
    talk.front.receive(ask)
    assert not [m for m in talk.said() if isinstance(m, UsedBelow)], "nothing was read yet"
    told = []
    for offset in (0, 3, 4):
        if offset:
            talk.tell(Committed(1, 0, 0, offset))
        talk.front.receive(ask)
        told += [m for m in talk.said() if isinstance(m, UsedBelow)]
    assert talk.front.addresses["watch-savepoint"] == "ipc://there"
    assert len(told) == 3
    assert len({*told}) == 1, "also after a later snapshot"
    assert (told[0].time, told[0].source) == (3, ListSource(["a", "b", "c"]).identity())
    until, last, total = told[0].used
    assert (until, last) == (3, 2)
    CheckedSource(ListSource(["a", "b", "x"]), Used(until, last, total)).check(3)
    with pytest.raises(StateMismatch):
        CheckedSource(ListSource(["a", "x", "c"]), Used(until, last, total)).check(3)


@pytest.mark.parametrize(("mode", "under_way"), [("none", 0), ("at-least-once", 2)])
def test_records_that_no_replay_brings_again_are_not_under_way(mode: str, under_way: int) -> None:
    talk = Talk(["a", "b"], mode, keeps_bad=False)
    talk.said()
    assert talk.front.meter.under_way == 2
    offset = 1 if talk.front.policy.replay else -1
    talk.front.receive(encode(Header("master", 2, 0), Start(2, offset, ())))
    talk.said()
    assert talk.front.meter.under_way == under_way
