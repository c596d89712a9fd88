"""The ZAP handler: says which keys of CURVE may connect, and gives each connection its voice.

ZeroMQ asks it, by RFC 27, in the handshake of each connection, before a message is taken. A socket
belongs to a *domain*: MEMBERS, or the source of an intake. The answer names the key, and ZeroMQ
writes this name on each message of the connection, as its User-Id: what a peer says of itself does
not count. A refusal is counted, and told in the log at most every ten seconds.

It is a thread, as the loop of the process may be busy. pyzmq's ThreadAuthenticator does the same
with a loop of asyncio, but knows neither domains with rights, nor names that a key speaks for.
"""

from __future__ import annotations

import threading
from time import monotonic

import zmq
from zmq.utils import z85

from driftline.deploy.runtime.sockets.keys import Authorised, Rights
from driftline.deploy.runtime.threads import ThreadDied
from driftline.engine.events import RateLimitedLog

MEMBERS = "members"
"""The domain of all parties of a run."""

SOURCE = "source "
"""The domain of an intake is this, and the name of its source."""

USER_ID = "User-Id"

KNOWN_MAX = 10_000
"""Names that a voice remembers."""

_WHERE = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_TELL_MS = 1000


class KeyVoice:
    """The voice of a key: what it was asked before costs one look into a set."""

    def __init__(self, key: str, rights: Rights) -> None:
        self.key = key
        self.rights = rights
        self._known: set[str] = set()

    def speaks_for(self, name: str) -> bool:
        """Whether it may speak in this name."""
        if name in self._known:
            return True
        if not self.rights.speaks_for(name):
            return False
        if len(self._known) < KNOWN_MAX:
            self._known.add(name)
        return True


class Zap:
    """The handler of a ZeroMQ context. It has to be made before the sockets that need it."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], authorised: Authorised, name: str
    ) -> None:
        """`name`: of who is protected, for the log."""
        self.voices: dict[str, KeyVoice] = {}
        """User-Id -> the voice of all its connections. Only the handler's thread changes it."""
        self.refused = 0
        """How many handshakes were refused."""
        self._authorised = authorised
        self._told = RateLimitedLog("key-refused", f"{name} refused a connection")
        self._died: ThreadDied | None = None
        self._context = context
        self._socket = context.socket(zmq.REP)
        self._socket.bind(_WHERE)
        self._thread = threading.Thread(target=self._run, name=f"keys of {name}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises ThreadDied if the handler cannot go on."""
        if self._died is not None:
            raise self._died

    def close(self) -> None:
        """End the handler: from now on all handshakes fail."""
        if self._thread.is_alive():
            with self._context.socket(zmq.REQ) as stop:
                stop.linger = 0
                stop.connect(_WHERE)
                stop.send(b"")  # only this process reaches it
                self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            with self._socket as socket:
                while True:
                    if not self._told.waits or socket.poll(_TELL_MS):
                        request = socket.recv_multipart()
                        if len(request) < 2:
                            break
                        socket.send_multipart(self._answer(request))
                    self._told.tell(monotonic())
        except BaseException as error:
            self._died = ThreadDied.of(error, "the handler of keys")
        self._told.close()

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """The answer to a request: the name of the key, or a refusal."""
        number = request[1]
        voice, why = self._voice(request)
        if voice is None:
            self.refused += 1
            self._told.add(monotonic(), why)
            return [_VERSION, number, b"400", b"no right", b"", b""]
        return [_VERSION, number, b"200", b"OK", voice.key.encode(), b""]

    def _voice(self, request: list[bytes]) -> tuple[KeyVoice | None, str]:
        if len(request) != 7 or request[0] != _VERSION or request[5] != b"CURVE":
            return None, "it does not use CURVE"
        domain, credential = request[2].decode(errors="replace"), request[6]
        public = z85.encode(credential).decode() if len(credential) == 32 else ""
        known = self._authorised.who(public)
        if known is None:
            return None, f"the key {public} is not authorised"
        name, rights = known
        if domain == MEMBERS:
            if not rights.is_member:
                return None, f"the key {name} is one of a producer, not of a member"
        elif not rights.may_send_to(domain.removeprefix(SOURCE)):
            return None, f"the key {name} has no right for the {domain}"
        voice = self.voices.get(name)
        if voice is None or voice.rights != rights:
            voice = self.voices[name] = KeyVoice(name, rights)
        return voice, ""
