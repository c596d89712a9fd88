"""Without replays a live source gives up what is delivered, and a front goes on behind it."""

from __future__ import annotations

import pytest

from driftline.deploy.parties.front import TRIM_EVERY_S, Front
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.policy import policy
from driftline.engine.sources import QueueSource
from driftline.engine.wire.messages import (
    Failed,
    Frame,
    Header,
    Message,
    Progress,
    Start,
    Stop,
    decode,
    encode,
)

RECORDS = 9


class Feeding:
    """A front of a live source with records 1 to `RECORDS`, its master, and a clock."""

    def __init__(self, mode: str, source: QueueSource | None = None) -> None:
        self.source = QueueSource() if source is None else source
        if source is None:
            for number in range(1, RECORDS + 1):
                self.source.put(number)
        flow = Flow("live")
        flow.source("in").sink()
        self.front = Front(0, 1, plan(flow), policy(mode), self.source, lambda: 1, run="now")
        self._told = 0

    def tell(self, message: Message, *, at: float = 0.0) -> list[Message]:
        """What the front says to a message of its master that comes at a time."""
        self.front.now = at
        self._told += not message.control
        sequence = 0 if message.control else self._told
        self.front.receive(encode(Header("master", 1, sequence), message))
        while self.front.turn():
            pass
        outbox, self.front.outbox = self.front.outbox, []
        return [decode(data)[1] for _, data in outbox]

    def start(self) -> list[Message]:
        return self.tell(Start(1, -1 if self.front.policy.name == "none" else 1, ()))


def test_what_is_delivered_is_given_up_as_time_passes() -> None:
    feeding = Feeding("none")
    feeding.start()
    feeding.tell(Progress(9, 3), at=10.0)
    assert feeding.source.trimmed == 3, "not what is only processed"
    feeding.tell(Progress(9, 5), at=10.0 + TRIM_EVERY_S / 2)
    assert feeding.source.trimmed == 3, "the log is not written for every record"
    feeding.tell(Progress(9, 5), at=10.0 + TRIM_EVERY_S)
    assert feeding.source.trimmed == 5


@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once", "two-phase"])
def test_with_replays_snapshots_say_what_is_given_up(mode: str) -> None:
    feeding = Feeding(mode)
    feeding.start()
    feeding.tell(Progress(9, 9), at=10.0)
    feeding.tell(Stop("now", "", ""))
    assert feeding.source.trimmed == 0


@pytest.mark.parametrize(("error", "trimmed"), [("", RECORDS + 1), ("FunctionFailed", 0)])
@pytest.mark.parametrize("ended", [False, True])
def test_a_run_that_ends_well_has_delivered_all_that_was_sent(
    error: str, trimmed: int, ended: bool
) -> None:
    feeding = Feeding("none")
    if ended:
        feeding.source.close()
    feeding.start()
    feeding.tell(Stop("another", "", ""))
    assert feeding.source.trimmed == 0
    feeding.tell(Stop("now", error, ""))
    assert feeding.source.trimmed == trimmed


def test_a_front_in_a_new_process_goes_on_behind_what_was_given_up() -> None:
    feeding = Feeding("none")
    feeding.start()
    feeding.tell(Progress(9, 7), at=10.0)
    again = Feeding("none", feeding.source)
    said = again.start()
    assert not [message for message in said if isinstance(message, Failed)]
    (frame,) = [message for message in said if isinstance(message, Frame)]
    assert frame.time == 7
    assert again.front.taken == RECORDS - 6
