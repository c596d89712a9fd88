"""A stranger at the port of a run: sends what a seed says, and reads no answer."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from random import Random
from time import time_ns

import zmq

from driftline.deploy.roles.intake import MAGIC, IntakeKind
from driftline.engine.wire.codec import RECORD_DEPTH_MAX, pack
from tests.deploy.runtime.raw_peer import COMMAND, GREETING, MORE, READY, Peer, frame, head
from tests.engine.wire.test_codec import nested

VICTIM = "p"
"""The producer whose stream is to be spoilt; nothing that is sent here is a record with this id."""


def messages(chance: Random) -> list[object]:
    """Messages with the right framing and the wrong content."""
    stranger = f"stranger-{chance.randrange(10**9)}"
    now = time_ns()
    return [
        (MAGIC, {}, "x", 1),
        (MAGIC, nested(900, "list"), "x", 1),
        (MAGIC, IntakeKind.END, stranger, now, 0),
        (MAGIC, IntakeKind.END, stranger, now, chance.getrandbits(62)),
        (MAGIC, IntakeKind.HELLO, VICTIM, (1 << 63) - 1),
        (MAGIC, IntakeKind.HELLO, stranger, (1 << 63) - 1),
        *((MAGIC, IntakeKind.HELLO, f"{stranger}-{i}", now) for i in range(200)),
        (MAGIC, IntakeKind.RECORD, stranger, now, 1, nested(RECORD_DEPTH_MAX + 1, "dict")),
        (MAGIC, IntakeKind.RECORD, stranger, now, 1, {(1, i): None for i in range(1000)}),
        (MAGIC, IntakeKind.RECORD, stranger, now, 1, bytes(1 << 24)),
        (MAGIC, IntakeKind.RECORD, stranger, now, 5, "early"),
        (MAGIC, IntakeKind.RECORD, stranger, 1 << 63, -1, 1.5),
    ]


def streams(chance: Random) -> list[bytes]:
    """Bytes with the wrong framing; after the first one comes no handshake."""
    return [
        b"GET / HTTP/1.1\r\n\r\n",
        GREETING,
        GREETING + READY + frame(bytes(1 << 16), MORE) * 100,
        GREETING + READY + head(1 << 60),
        GREETING + READY + head(1 << 24) + b"beginning",
        GREETING + frame(bytes(4000), COMMAND) * 50,
        GREETING + READY + chance.randbytes(chance.randrange(2000)),
        chance.randbytes(chance.randrange(200)),
    ]


def attack(address: str, chance: Random) -> None:
    """Everything of the above once, over some connections, which then break."""
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        dealer = stack.enter_context(context.socket(zmq.DEALER))
        dealer.setsockopt(zmq.LINGER, 200)
        dealer.setsockopt(zmq.SNDTIMEO, 5000)
        dealer.set_hwm(1000)
        dealer.connect(address)
        for message in messages(chance):
            dealer.send(pack(message))
        for _ in range(50):
            dealer.send(chance.randbytes(chance.randrange(60)))
        with suppress(zmq.Again):
            dealer.send_multipart([b"two", b"parts"])
        for data in streams(chance):
            peer = stack.enter_context(Peer(address, shaken=False))
            peer.socket.settimeout(2)
            peer.try_to_send(data)
