"""ZAP handler: decides which CURVE keys may connect, and assigns a `CurveSenderKey` to each.

ZeroMQ sends it a request (RFC 27) in the handshake of each connection, before any message. A
socket belongs to a *domain*: MEMBERS, or the source of an intake. The answer names the key, and
ZeroMQ attaches this name to each message of the connection as its User-Id; what a peer claims about
itself does not count. Refusals are counted, and logged at most every ten seconds.

The handler is a thread, because the loop of the process may be busy. pyzmq's ThreadAuthenticator
does the same with an asyncio loop, but supports neither domains with rights, nor names under which
a key may send.
"""

from __future__ import annotations

import threading
from time import monotonic

import zmq
from msgspec import Struct
from zmq.utils import z85

from driftline.deploy.runtime.sockets.keys import Authorised, Rights
from driftline.deploy.runtime.threads import ThreadDied
from driftline.engine.events import RateLimitedLog

MEMBERS = "members"
"""Domain of the inboxes of all roles of a run."""

SOURCE = "source "
"""Prefix of the domain of an intake, before the name of its source."""

USER_ID = "User-Id"

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_LOG_CHECK_MS = 1000


class CurveSenderKey(Struct, frozen=True):
    """The key of a sender: its name and its rights. Implements `engine.wire.kinds.SenderKey`."""

    key: str
    rights: Rights

    def may_send_as(self, name: str) -> bool:
        """Return whether the key may send messages under this name."""
        return self.rights.may_send_as(name)


class Zap:
    """ZAP handler of a ZeroMQ context. Create it before the sockets that need it."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], authorised: Authorised, name: str
    ) -> None:
        """`name`: the protected role, for the log."""
        self.sender_keys: dict[str, CurveSenderKey] = {}
        """User-Id (name of a key) -> its `CurveSenderKey`. Only the handler's thread changes it."""
        self.refused = 0
        """Number of refused handshakes."""
        self._authorised = authorised
        self._refusal_log = RateLimitedLog("key-refused", f"{name} refused a connection")
        self._died: ThreadDied | None = None
        self._context = context
        self._socket = context.socket(zmq.REP)
        self._socket.bind(_ENDPOINT)
        self._thread = threading.Thread(target=self._run, name=f"keys of {name}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise ThreadDied if the handler has died."""
        if self._died is not None:
            raise self._died

    def close(self) -> None:
        """Stop the handler; all later handshakes fail."""
        if self._thread.is_alive():
            with self._context.socket(zmq.REQ) as stop:
                stop.linger = 0
                stop.connect(_ENDPOINT)
                stop.send(b"")  # only this process can connect
                self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            with self._socket as socket:
                while True:
                    if not self._refusal_log.has_unlogged or socket.poll(_LOG_CHECK_MS):
                        request = socket.recv_multipart()
                        if len(request) < 2:
                            break
                        socket.send_multipart(self._answer(request))
                    self._refusal_log.log_if_due(monotonic())
        except BaseException as error:
            self._died = ThreadDied.of(error, "the handler of keys")
        self._refusal_log.close()

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """Return the answer to a request: the name of the key, or a refusal."""
        request_id = request[1]
        sender_key, reason = self._authorise(request)
        if sender_key is None:
            self.refused += 1
            self._refusal_log.add(monotonic(), reason)
            return [_VERSION, request_id, b"400", b"no right", b"", b""]
        return [_VERSION, request_id, b"200", b"OK", sender_key.key.encode(), b""]

    def _authorise(self, request: list[bytes]) -> tuple[CurveSenderKey | None, str]:
        """Return (key, "") for a key that may connect, or else (None, reason of the refusal)."""
        if len(request) != 7 or request[0] != _VERSION or request[5] != b"CURVE":
            return None, "it does not use CURVE"
        domain, credential = request[2].decode(errors="replace"), request[6]
        public = z85.encode(credential).decode() if len(credential) == 32 else ""
        entry = self._authorised.find_key(public)
        if entry is None:
            return None, f"the key {public} is not authorised"
        name, rights = entry
        if domain == MEMBERS:
            if not rights.is_member:
                return None, f"the key {name} belongs to a producer, not to a member"
        elif not rights.may_send_to(domain.removeprefix(SOURCE)):
            return None, f"the key {name} has no right for the {domain}"
        sender_key = self.sender_keys[name] = CurveSenderKey(name, rights)
        return sender_key, ""
