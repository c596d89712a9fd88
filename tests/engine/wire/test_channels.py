"""Channels: messages arrive in order and once, or their loss is detected."""

from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.messages import (
    Hello,
    Lead,
    Message,
    Recover,
    SendMarker,
    Stop,
)
from driftline.engine.wire.role import Role


class MessageRecorder(Role):
    """Role that records the messages it handles."""

    def __init__(self, name: str = "me") -> None:
        super().__init__(name)
        self.received: list[tuple[str, Message]] = []
        self.lost: list[str] = []

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, Stop):
            raise MalformedMessage("not for me")
        self.received.append((sender, message))

    def channel_lost(self, sender: str) -> None:
        self.lost.append(sender)


def pair() -> tuple[Role, MessageRecorder]:
    sender, listener = MessageRecorder("sender"), MessageRecorder("me")
    sender.enter_incarnation(1)
    listener.enter_incarnation(1)
    return sender, listener


def sent(party: Role, *numbers: int) -> list[bytes]:
    for number in numbers:
        party.send("me", SendMarker(number))
    found = [data for _, data in party.outbox]
    party.outbox.clear()
    return found


def received_by(party: MessageRecorder) -> list[int]:
    return [message.number for _, message in party.received if isinstance(message, SendMarker)]


@given(st.lists(st.integers(0, 9), max_size=40))
@settings(max_examples=200)
def test_receiver_handles_a_prefix_of_the_sent_messages(
    arrivals: list[int],
) -> None:
    """With repeats and losses, messages are handled in order, once, up to the first lost one."""
    sender, listener = pair()
    data = sent(sender, *range(10))
    reached = 0
    lost = False
    for number in arrivals:
        listener.receive(data[number])
        lost = lost or number > reached
        reached += number == reached and not lost
        assert received_by(listener) == list(range(reached))
        assert listener.lost == ["sender"] * lost


def test_gap_is_reported_once_and_stops_handling_until_next_incarnation() -> None:
    sender, listener = pair()
    data = sent(sender, 1, 2, 3, 4)
    for number in (0, 2, 3, 1):
        listener.receive(data[number])
    assert received_by(listener) == [1]
    assert listener.lost == ["sender"]
    for party in (sender, listener):
        party.enter_incarnation(2)
    for message in sent(sender, 5, 6):
        listener.receive(message)
    assert received_by(listener) == [1, 5, 6]


def test_messages_of_another_incarnation_have_no_effect() -> None:
    sender, listener = pair()
    old = sent(sender, 1, 2)
    listener.enter_incarnation(2)
    sender.enter_incarnation(2)
    new = sent(sender, 3)
    sender.enter_incarnation(3)
    newer = sent(sender, 4, 5)
    for data in (old[1], newer[1], new[0], old[0], newer[0]):
        listener.receive(data)
    assert received_by(listener) == [3]
    assert listener.lost == []
    assert listener.malformed == 0


def test_control_messages_are_neither_numbered_nor_dropped_by_incarnation() -> None:
    sender, listener = pair()
    sender.send("me", SendMarker(1))
    sender.send("me", Hello("address", "process", 1, 0))
    sender.send("me", SendMarker(2))
    first, hello, second = (data for _, data in sender.outbox)
    listener.receive(hello)
    listener.receive(first)
    listener.receive(hello)
    listener.receive(second)
    listener.enter_incarnation(2)
    listener.receive(hello)
    assert listener.lost == []
    assert received_by(listener) == [1, 2]
    assert [type(message) for _, message in listener.received].count(Hello) == 3


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5))
def test_malformed_bytes_are_counted_and_do_not_break_the_channel(garbage: list[bytes]) -> None:
    sender, listener = pair()
    first, second = sent(sender, 1, 2)
    listener.receive(first)
    for data in garbage:
        listener.receive(data)
    listener.receive(second)
    assert listener.malformed == len(garbage)
    assert received_by(listener) == [1, 2]


def test_message_rejected_by_a_role_counts_as_malformed() -> None:
    sender, listener = pair()
    sender.send("me", Stop("", "", ""))
    listener.receive(sender.outbox[0][1])
    assert listener.malformed == 1


# Epochs of the master ---------------------------------------------------------------------------


def leads(epoch: int) -> MessageRecorder:
    """Return a master of an epoch, in incarnation 1."""
    master = MessageRecorder("master")
    master.enter_incarnation(1)
    master.follow_master(epoch)
    return master


def test_messages_of_an_earlier_master_are_dropped() -> None:
    earlier, later, member = leads(3), leads(4), MessageRecorder()
    member.enter_incarnation(1)
    [hello, *_] = encoded_messages(earlier, Lead(), SendMarker(1))
    member.receive(hello)
    member.receive(
        encoded_messages(earlier, SendMarker(2))[0]
    )  # after a lost message: a gap in the numbers
    assert member.lost == ["master"]
    for data in encoded_messages(later, Lead(), SendMarker(11)):
        member.receive(data)
    for data in encoded_messages(earlier, SendMarker(3), Recover(2, 0, 0, 0, ())):
        member.receive(data)
    for data in encoded_messages(later, SendMarker(12)):
        member.receive(data)
    assert received_by(member) == [11, 12]
    assert [type(message) for _, message in member.received].count(Recover) == 0
    assert member.epoch == 4


def encoded_messages(party: Role, *messages: Message, to: str = "me") -> list[bytes]:
    for message in messages:
        party.send(to, message)
    found = [data for _, data in party.outbox]
    party.outbox.clear()
    return found
