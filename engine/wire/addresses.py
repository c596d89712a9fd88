"""Addresses: the endpoint of a role and the public key of its process, in one text.

    tcp://10.0.0.5:7001#rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7     endpoint # public key, in Z85
    ipc:///run/driftline/node-0                                       without a key

This module resolves no host names and opens no sockets. A peer may send any text as an address, so
`parse` raises MalformedMessage if the text is invalid or longer than `ADDRESS_CHARS_MAX`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from driftline.engine.errors import MalformedMessage

ADDRESS_CHARS_MAX = 320
"""Maximum length of an address. A host name has at most 253 characters."""

_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_TCP = re.compile(r"tcp://(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s\[\]:/#;]+)):([0-9]{1,5})")


class Address(NamedTuple):
    """Parts of an address."""

    endpoint: str
    """The endpoint in ZeroMQ's format, without the key."""
    public_key: str = ""
    """The public key of the listening process; "" if the address contains none."""

    def __str__(self) -> str:
        return f"{self.endpoint}#{self.public_key}" if self.public_key else self.endpoint


def parse(text: str) -> Address:
    """Split an address into its parts. Raises MalformedMessage."""
    if len(text) > ADDRESS_CHARS_MAX:
        raise MalformedMessage(f"an address has {len(text)} characters, over {ADDRESS_CHARS_MAX}")
    if text.startswith(("ipc://", "inproc://")):
        if text.endswith("://") or not text.isprintable():
            raise MalformedMessage(f"{text!r} is not an address: it has no path")
        return Address(text)  # a path may contain #, so such an address has no key
    endpoint, mark, public = text.partition("#")
    match = _TCP.fullmatch(endpoint)
    if match is None or not 0 < int(match[3]) < 1 << 16:
        raise MalformedMessage(f"{text!r} is not an address: it is not tcp://HOST:PORT")
    if mark and not is_public_key(public):
        raise MalformedMessage(f"{text!r} is not an address: the text after # is not a public key")
    return Address(endpoint, public)


def is_public_key(text: str) -> bool:
    """Return whether a text looks like a public key: 40 characters of Z85."""
    return _Z85.fullmatch(text) is not None


def host_of(endpoint: str) -> str:
    """Return the host of a TCP endpoint, without brackets. Precondition: `parse` accepted it."""
    match = _TCP.fullmatch(endpoint)
    assert match is not None, endpoint
    return match[1] or match[2]
