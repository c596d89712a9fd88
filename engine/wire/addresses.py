"""Addresses: where a party is reached, and by which key its process is known; in one text.

    tcp://10.0.0.5:7001#rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7     endpoint # public key, in Z85
    ipc:///run/driftline/node-0                                       without a key

Nothing is resolved or opened here. A text of a peer may be anything: `parse` raises
MalformedMessage for what is no address, and no text is longer than `ADDRESS_CHARS_MAX`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from driftline.engine.errors import MalformedMessage

ADDRESS_CHARS_MAX = 320
"""A name of a host has at most 253."""

_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_TCP = re.compile(r"tcp://(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s\[\]:/#;]+)):([0-9]{1,5})")


class Address(NamedTuple):
    """An address, in its parts."""

    endpoint: str
    """As ZeroMQ takes it."""
    public: str = ""
    """The public key of the one who listens there; "" if it has none."""

    def __str__(self) -> str:
        return f"{self.endpoint}#{self.public}" if self.public else self.endpoint


def parse(text: str) -> Address:
    """The parts of an address. Raises MalformedMessage."""
    if len(text) > ADDRESS_CHARS_MAX:
        raise MalformedMessage(f"an address of {len(text)} characters")
    if text.startswith(("ipc://", "inproc://")):
        if text.endswith("://") or not text.isprintable():
            raise MalformedMessage(f"{text!r} is no address: it has no path")
        return Address(text)  # a path may have any character, and these have no keys
    endpoint, mark, public = text.partition("#")
    found = _TCP.fullmatch(endpoint)
    if found is None or not 0 < int(found[3]) < 1 << 16:
        raise MalformedMessage(f"{text!r} is no address: it is not tcp://HOST:PORT")
    if mark and not is_public(public):
        raise MalformedMessage(f"{text!r} is no address: what is behind # is no key")
    return Address(endpoint, public)


def is_public(text: str) -> bool:
    """Whether a text has the form of a key."""
    return _Z85.fullmatch(text) is not None


def host_of(endpoint: str) -> str:
    """The host in an endpoint of TCP, without brackets. Precondition: `parse` has made it."""
    found = _TCP.fullmatch(endpoint)
    assert found is not None, endpoint
    return found[1] or found[2]
