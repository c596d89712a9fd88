"""Messages survive a round trip, and other bytes are never decoded as a message."""

from random import Random
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.wire import messages
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import (
    MAGIC,
    Acknowledge,
    Frame,
    Message,
    MessageHeader,
    decode,
    encode,
)
from tests.engine.state.states import as_tuples, encodable, exact

KINDS = sorted(
    (
        kind
        for kind in vars(messages).values()
        if isinstance(kind, type) and issubclass(kind, Message) and kind.senders
    ),
    key=lambda kind: kind.__name__,
)


def of_type(wanted: object) -> st.SearchStrategy[object]:
    """Return a strategy for values of a field's type."""
    if wanted is int:
        return st.integers(-(2**63), 2**63 - 1)
    if wanted is str:
        return st.text(max_size=8)
    if wanted is bytes:
        return st.binary(max_size=8)
    parts = get_args(wanted)
    if get_origin(wanted) is UnionType:
        return st.one_of(*map(of_type, parts))
    assert get_origin(wanted) is tuple, wanted
    if parts[-1] is Ellipsis:
        return st.lists(of_type(parts[0]), max_size=3).map(tuple)
    return st.tuples(*map(of_type, parts))


def made(kind: type[Message]) -> st.SearchStrategy[Message]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: of_type(hints[name]) for name in kind.__struct_fields__})


any_message = st.one_of([made(kind) for kind in KINDS])
headers = st.builds(MessageHeader, st.text(max_size=6), st.integers(0, 99), st.integers(0, 99))


def fields_of(message: Message) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


# Encoding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data(), header=headers)
@settings(max_examples=15)
def test_every_message_type_round_trips(
    kind: type[Message], data: st.DataObject, header: MessageHeader
) -> None:
    message = data.draw(made(kind))
    got_header, got = decode(encode(header, message))
    assert got_header == header
    assert type(got) is kind
    assert exact(fields_of(got)) == exact(as_tuples(fields_of(message)))


def test_a_payload_that_cannot_be_encoded_is_rejected_when_it_is_sent() -> None:
    with pytest.raises(PayloadError):
        encode(
            MessageHeader("a", 1, 1),
            Frame(0, 0, 1, 1, (((1, -1, [(1, 0)]), object(), ()),), ()),  # type: ignore[arg-type]
        )


# Malformed bytes ------------------------------------------------------------------------------


def survives(data: bytes) -> bool:
    """Return whether bytes decode to a message; any error but MalformedMessage fails the test."""
    try:
        header, message = decode(data)
    except MalformedMessage:
        return False
    assert (type(header.sender), type(header.incarnation)) == (str, int)
    assert type(message) in KINDS
    return True


@given(st.binary(max_size=80))
@settings(max_examples=300)
def test_arbitrary_bytes_are_no_message(data: bytes) -> None:
    assert not survives(data)


@given(any_message, headers, st.integers(0, 2**32))
@settings(max_examples=300)
def test_a_mutated_message_is_a_message_or_malformed(
    message: Message, header: MessageHeader, seed: int
) -> None:
    chance = Random(seed)
    data = bytearray(encode(header, message))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        change = chance.choice(["flip", "set", "cut", "insert", "drop"])
        if change == "flip":
            data[at] ^= 1 << chance.randrange(8)
        elif change == "set":
            data[at] = chance.randrange(256)
        elif change == "cut" and len(data) > 2:
            del data[1 + at // 2 :]
        elif change == "insert":
            data.insert(at, chance.randrange(256))
        elif len(data) > 2:
            del data[at]
    survives(bytes(data))


@given(any_message, headers)
def test_truncated_or_extended_message_is_malformed(
    message: Message, header: MessageHeader
) -> None:
    data = encode(header, message)
    assert not survives(data + b"\x00")
    for end in range(0, len(data), max(1, len(data) // 20)):
        assert not survives(data[:end])


@given(encodable, st.integers(0, 60))
@settings(max_examples=200)
def test_any_value_as_a_message_or_a_part_is_rejected_or_valid(value: object, at: int) -> None:
    survives(pack(value))
    parts: list[object] = [10, 0, 1, 1, 1]
    parts[at % len(parts)] = value
    survives(pack([MAGIC, "a", 1, 1, parts]))
    envelope: list[object] = [MAGIC, "a", 1, 1, (10, 0, 1, 1, 1)]
    envelope[at % len(envelope)] = value
    survives(pack(envelope))


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (MAGIC + 1, "a", 1, 1, (21, 5)),
        (MAGIC, b"a", 1, 1, (21, 5)),
        (MAGIC, "a", True, 1, (21, 5)),
        (MAGIC, "a", 1, 1, (999, 5)),
        (MAGIC, "a", 1, 1, (21,)),
        (MAGIC, "a", 1, 1, (21, 5, 5)),
        (MAGIC, "a", 1, 1, (21, "5")),
        (MAGIC, "a", 1, 1, (21, True)),
    ],
)
def test_each_part_of_a_message_is_checked(parts: object) -> None:
    assert isinstance(decode(pack((MAGIC, "a", 1, 1, (21, 5))))[1], messages.SendMarker)
    with pytest.raises(MalformedMessage, match="not a Driftline message"):
        decode(pack(parts))


@pytest.mark.parametrize(
    "message",
    [
        Acknowledge((5,), (), 0),  # type: ignore[arg-type]
        Acknowledge((), ((0, 1),), 0),  # type: ignore[arg-type]
        messages.Recover(1, 1, 1, 1, ((1, 2, 3),)),  # type: ignore[arg-type]
        messages.Bundle("b", 1, (1,), (b"x",), 1, 1),  # type: ignore[arg-type]
        messages.Bundle("b", 1, (1, 2), ("x",), 1, 1),  # type: ignore[arg-type]
    ],
    ids=lambda message: type(message).__name__,
)
def test_nested_types_in_message_fields_are_checked(message: Message) -> None:
    """Decoding checks the types inside of a field, so roles receive only well-formed messages."""
    with pytest.raises(MalformedMessage):
        decode(encode(MessageHeader("a", 1, 1), message))
