"""The messages of those who look after a flow and are no members of it: agents and watches."""

from __future__ import annotations

from driftline.engine.wire.kinds import Message, message


@message(48, control=True)
class MasterAt(Message):
    """Agent to a member: say hello to this address; whoever leads says so himself (`Lead`)."""

    address: str


@message(49, control=True)
class AskDrain(Message):
    """Agent to front: the run shall end in good order; repeated until it has ended."""


@message(52, control=True)
class AskUsed(Message):
    """Watch to front: which records are below `time`? Answered to `address` once they are read."""

    address: str
    time: int


@message(53, control=True)
class UsedBelow(Message):
    """Answer to `AskUsed`. `source`: the identity of the input. `used`: (until, last, checksum), as
    in `engine.sources.used`; `last` is not below `time` if that is known no more. Empty if records
    of this input are never compared."""

    time: int
    source: str
    used: tuple[int, ...]


@message(38, control=True)
class AskReport(Message):
    """Anybody to a member or the master: send a `Report` to `address`."""

    address: str


@message(39, control=True)
class Report(Message):
    """Member or master to the one who asked: its figures, by name, and its state in words.

    `waits_for`: the same at length; empty if there is no more to say. If it is the master,
    `addresses`: where all members can be asked, and `obstacles`: what the run waits for outside;
    `silent`: (node, its process or "" if that was never heard, milliseconds of silence).
    `process`: the process that reports, new with each start. `wanted`: the nodes that have to run,
    `layout`: those that run the flow, `resizing`: what becomes of the number of nodes, for people;
    "" if nothing; `refused`: why it cannot become what was asked for.
    """

    figures: tuple[tuple[str, int], ...]
    state: str
    waits_for: str
    addresses: tuple[tuple[str, str], ...]
    obstacles: tuple[str, ...] = ()
    process: str = ""
    silent: tuple[tuple[str, str, int], ...] = ()
    wanted: tuple[str, ...] = ()
    layout: tuple[int, ...] = ()
    resizing: str = ""
    refused: str = ""
