"""Cursors: opaque texts by which a client goes on with a list, as of the same T.

A cursor is bound to its query by a checksum over both. So one that is damaged, or is sent with
another query, is refused.

>>> text = sealed((7, "place"), b"documents cat")
>>> opened(text, b"documents cat", "q")
(7, 'place')
>>> opened(text, b"documents dog", "q")  # doctest: +ELLIPSIS
Traceback (most recent call last):
...
driftline.serve.errors.Refused: this is no cursor of this query: give it as it was received, ...
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from hashlib import blake2b

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.errors import Refused

_CHECK_BYTES = 8


def sealed(place: object, query: bytes) -> str:
    """A cursor for a place in a list. `query`: differs where lists or their order do."""
    data = pack(place)
    return urlsafe_b64encode(_check(data, query) + data).rstrip(b"=").decode()


def opened(text: str, query: bytes, same: str) -> object:
    """The place of a cursor. `same`: the parameters that have to be the same. Raises Refused."""
    try:
        found = b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        check, data = found[:_CHECK_BYTES], found[_CHECK_BYTES:]
        if check == _check(data, query):
            return unpack(data)
    except (ValueError, MalformedMessage):
        pass
    raise refusal(same)


def refusal(same: str) -> Refused:
    """Why a text is no cursor."""
    text = f"this is no cursor of this query: give it as it was received, with the same {same}"
    return Refused("invalid", text, {"parameter": "cursor"})


def _check(place: bytes, query: bytes) -> bytes:
    key = blake2b(query, digest_size=32).digest()
    return blake2b(place, digest_size=_CHECK_BYTES, key=key).digest()
