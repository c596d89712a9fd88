"""The messages by which log lines are read; see `deploy.cluster.agents.logbook`."""

from __future__ import annotations

from driftline.engine.wire.kinds import Message, message


@message(50, control=True)
class AskLines(Message):
    """Watch to the agent of a host: send `Lines` to `address`.

    `flow`: empty: those of the agent itself; `since`: a place, or -1: the last `count` lines.
    """

    address: str
    flow: str
    since: int
    count: int


@message(51, control=True)
class Lines(Message):
    """Agent to watch: whole lines from the place `since`, as it was asked, to the place `until`.

    `more`: 1 if there are more of them now.
    """

    flow: str
    since: int
    until: int
    more: int
    lines: bytes
