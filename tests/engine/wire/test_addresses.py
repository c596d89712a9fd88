"""Addresses: one text has all that a peer needs, and a hostile text has nothing."""

from __future__ import annotations

from contextlib import suppress

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.addresses import Address, host_of, parse

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
def test_an_address_is_one_text(address: Address) -> None:
    assert parse(str(address)) == address


def test_every_key_that_there_is_can_be_in_an_address() -> None:
    for _ in range(50):
        public = zmq.curve_keypair()[0].decode()
        assert parse(f"tcp://h:1#{public}").public == public


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tcp://",
        "tcp://host",
        "tcp://host:0",
        "tcp://host:65536",
        "tcp://host:*",
        "tcp://a b:1",
        "tcp://a;b:1",
        "tcp://host:1#",
        f"tcp://host:1#{PUBLIC}x",
        f"tcp://host:1#{PUBLIC[:-1]}~",
        "tcp://host:1\n",
        "udp://host:1",
        "ipc://",
        "ipc://a\0b",
        "tcp://" + "h" * 400 + ":1",
    ],
)
def test_what_is_no_address_is_malformed(text: str) -> None:
    with pytest.raises(MalformedMessage):
        parse(text)


@given(st.text())
def test_any_text_is_an_address_or_malformed(text: str) -> None:
    with suppress(MalformedMessage):
        assert str(parse(f"tcp://{text}")) == f"tcp://{text}"


@pytest.mark.parametrize(("endpoint", "host"), [("tcp://a:1", "a"), ("tcp://[::1]:1", "::1")])
def test_the_host_of_an_endpoint(endpoint: str, host: str) -> None:
    assert host_of(endpoint) == host
