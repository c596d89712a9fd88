"""The outer framing of ZMTP 3: where frames begin and end, and which of them may pass.

Takes the bytes of one peer, and says how many of them may go on to ZeroMQ. What is in a frame does
not matter: with CURVE the framing is the same. (https://rfc.zeromq.org/spec/37)

    greeting   FF, 8 bytes, 7F, 3 (the version), 53 bytes
    frame      flags (MORE 1, LONG 2, COMMAND 4), the size as 1 byte, or 8 if LONG; the body

Invariant: the first byte of a greeting, and of a frame, passes only after it was checked.
"""

from __future__ import annotations

from collections.abc import Callable

COMMAND_BYTES_MAX = 4096
"""The largest command frame that passes."""

_SIGNATURE = 10
_GREETING = 64
_KNOWN = {0: 0xFF, 9: 0x7F, 10: 3}
"""The bytes of a greeting that are always the same; the 11th is the version."""
_MORE, _LONG, _COMMAND = 1, 2, 4


class Violation(Exception):
    """A peer has sent what must not pass; the text says what."""


class Framing:
    """The frames of one peer, as far as they have come."""

    def __init__(self, message_bytes_max: int) -> None:
        self.commands = 0
        """Commands that have come as a whole."""
        self.messages = 0
        """Message frames that have come as a whole."""
        self.size = 0
        """The size of the message frame that has begun; 0: there is none."""
        self.finished: list[int] = []
        """The sizes of the message frames that were finished by the last call of `passing`."""
        self.waits = False
        """Whether the next frame waits for room."""
        self._message_bytes_max = message_bytes_max
        self._greeting_left = _GREETING
        self._left = 0
        """Bytes of the frame's body that have not come."""
        self._is_command = False

    @property
    def is_amid(self) -> bool:
        """Whether the last byte that has passed is within a frame, or within the greeting."""
        return self._left > 0 or self._greeting_left > 0

    def passing(self, data: bytes, may_begin: Callable[[int], bool]) -> int:
        """How many bytes of `data` may go on now. Raises Violation.

        `may_begin`: whether there is room for a message of this size, which then begins.
        The rest is the beginning of a greeting or of a frame that has not come as a whole, or waits
        for room: the next call has to begin with it.
        """
        self.finished.clear()
        self.waits = False
        at = self._greeted(data) if self._greeting_left else 0
        while at < len(data) and not self._greeting_left:
            if self._left:
                step = min(self._left, len(data) - at)
                at += step
                self._left -= step
            else:
                head = 9 if data[at] & _LONG else 2
                if len(data) - at < head:
                    return at
                size = int.from_bytes(data[at + 1 : at + head], "big")
                if not self._begin(data[at], size, may_begin):
                    self.waits = True
                    return at
                at += head
            if not self._left:
                self._finish()
        return at

    def _greeted(self, data: bytes) -> int:
        """How many bytes of the greeting may go on."""
        first = _GREETING - self._greeting_left
        step = min(self._greeting_left, len(data))
        for place, byte in _KNOWN.items():
            if first <= place < first + step and data[place - first] != byte:
                raise Violation("it does not speak ZMTP 3, the protocol of ZeroMQ")
        if first + step < _SIGNATURE:
            return 0
        self._greeting_left -= step
        return step

    def _begin(self, flags: int, size: int, may_begin: Callable[[int], bool]) -> bool:
        """Begin a frame, if there is room for it. Raises Violation."""
        if flags > _MORE | _LONG | _COMMAND:
            raise Violation("a frame with unknown flags")
        self._is_command = bool(flags & _COMMAND)
        if flags & _MORE:
            raise Violation("a message of several frames")
        if self._is_command and size > COMMAND_BYTES_MAX:
            raise Violation(f"a command of {size} bytes; at most {COMMAND_BYTES_MAX}")
        if not self._is_command:
            if not self.commands:
                raise Violation("a message before the end of the handshake")
            if size > self._message_bytes_max:
                raise Violation(f"a message of {size} bytes; at most {self._message_bytes_max}")
            if not may_begin(size):
                return False
            self.size = size
        self._left = size
        return True

    def _finish(self) -> None:
        if self._is_command:
            self.commands += 1
            return
        self.messages += 1
        self.finished.append(self.size)
        self.size = 0
