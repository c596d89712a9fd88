"""Addresses: one text has all that a peer needs, and malformed text is rejected."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.addresses import Address, parse

PUBLIC = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


@pytest.mark.parametrize(
    "address",
    [
        Address("tcp://10.0.0.5:7001", PUBLIC),
        Address("tcp://10.0.0.5:7001"),
        Address("tcp://[fe80::1]:1", "#" * 40),
        Address("tcp://a-host.example.org:65535", PUBLIC),
        Address("ipc:///run/a #b"),
        Address("inproc://inbox"),
    ],
)
def test_address_round_trips_through_its_text(address: Address) -> None:
    assert parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tcp://host",
        "tcp://host:65536",
        "tcp://host:*",
        "tcp://a b:1",
        "tcp://host:1#",
        f"tcp://host:1#{PUBLIC[:-1]}~",
        "tcp://host:1\n",
        "udp://host:1",
        "ipc://a\0b",
        "tcp://" + "h" * 400 + ":1",
    ],
)
def test_invalid_address_is_malformed(text: str) -> None:
    with pytest.raises(MalformedMessage):
        parse(text)


@given(st.text())
def test_any_text_is_an_address_or_malformed(text: str) -> None:
    with suppress(MalformedMessage):
        assert str(parse(f"tcp://{text}")) == f"tcp://{text}"
