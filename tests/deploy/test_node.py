"""What a node does by itself, beside what the simulation shows of all together."""

from itertools import count

from deploy.node import Node
from deploy.simulation.flows import two_fronts
from engine.codec import pack_rows
from engine.keygroups import Owners
from engine.labels import INFINITY
from engine.messages import (
    Acknowledge,
    AskPromise,
    Bundle,
    BundleStored,
    Failed,
    Frame,
    Header,
    LastBundle,
    Message,
    Progress,
    Promise,
    Recover,
    decode,
    encode,
)
from engine.plan import plan
from engine.policy import policy
from engine.snapshots import Loaded

INCARNATION = 1


class Running:
    """Node 0 of two, in its first incarnation, with nobody around it."""

    def __init__(self) -> None:
        ids = count(1)
        self.node = Node(0, 2, plan(two_fronts), policy("exactly-once"), lambda: next(ids))
        self.sequences: dict[str, int] = {}
        self.tell("master", Recover(INCARNATION, 0, 0, 0, ()))
        [load] = self.node.jobs
        self.node.done(load, Loaded(b"", []))
        self.tell("consumer", LastBundle("barrier-0", INCARNATION, (), -1, 0))
        assert self.node.running
        self.node.outbox.clear()

    def tell(self, sender: str, message: Message) -> None:
        number = 0 if message.control else self.sequences.get(sender, 0) + 1
        self.sequences[sender] = number or self.sequences.get(sender, 0)
        self.node.receive(encode(Header(sender, INCARNATION, number), message))

    def said(self) -> list[tuple[str, Message]]:
        """What the node sends until it has nothing more to do."""
        said: list[tuple[str, Message]] = []
        while self.node.turn() or self.node.outbox:
            said += [(to, decode(data)[1]) for to, data in self.node.outbox]
            self.node.outbox.clear()
        return said


def test_an_idle_front_is_asked_though_no_frontier_can_move_before_it_answers() -> None:
    running = Running()
    running.tell("node-1", Acknowledge((), ((0, 0, 8),), 0))
    assert ("front-1", AskPromise(8)) in running.said()
    assert running.said() == []  # once is enough
    running.tell("front-1", Promise(1, 0, 8, 8))
    running.tell("node-1", Acknowledge((), ((0, 8, 9),), 0))
    assert ("front-1", AskPromise(9)) in running.said()


def test_payloads_that_cannot_be_read_stop_the_run_and_say_so() -> None:
    running = Running()
    piece = (1, -1, [(5, 0)]), b"\xc1", ()
    running.tell("front-0", Frame(0, 0, 5, 0, (piece,), (0, 6)))
    [failed] = [message for _, message in running.said() if isinstance(message, Failed)]
    assert (failed.error, "msgpack" in failed.text) == ("MalformedMessage", True)


def test_what_comes_while_outputs_leave_is_worked_off_without_waiting_for_more() -> None:
    running = Running()
    owners = Owners(2, two_fronts.groups)
    ours = next(key for key in "abcdefgh" if owners.of([key]) == [0])
    record = {"id": 1, "key": ours, "text": "x" * 9}

    def elements() -> int:
        return running.node.assembly.figures()["elements"]

    def frame(time: int) -> Frame:
        piece = (1, -1, [(time, 0)]), pack_rows([record]), ()
        return Frame(0, 0, time, 0, (piece,), (time, time + 1))

    running.tell("front-0", Promise(0, 0, 5, INFINITY))
    running.tell("front-1", Promise(1, 0, INFINITY, INFINITY))
    running.tell("front-0", frame(5))
    [first] = [message for _, message in running.said() if isinstance(message, Bundle)]
    running.tell("front-0", frame(6))
    assert not [message for _, message in running.said() if isinstance(message, Bundle)]
    running.tell("consumer", BundleStored("barrier-0", INCARNATION, first.t_last))
    assert running.node.turn(), "the second bundle leaves"
    [second] = [decode(data)[1] for _, data in running.node.outbox]
    assert isinstance(second, Bundle)
    running.node.outbox.clear()
    assert elements() == 2
    running.tell("front-0", frame(7))
    running.said()
    assert elements() == 3


def test_others_hear_nothing_before_the_master_has_begun() -> None:
    """They may not be in the incarnation yet, and would miss it: their channel would have a gap."""
    running = Running()
    running.node.tick(1.0)
    assert "node-1" not in {to for to, _ in running.said()}
    running.tell("master", Progress(0, 0))
    running.node.tick(2.0)
    assert ("node-1", Acknowledge((), (), 0)) in running.said()
