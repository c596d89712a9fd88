"""A budget of bytes: messages on their way through ZeroMQ, from a guard to the owner of a socket.

The guard's thread changes all numbers but `taken` and `empty_at`, which the owner's thread changes.
A message may be lost in ZeroMQ, with its connection. So once the owner finds no message, whatever
had passed a while before is there no longer.
"""

from __future__ import annotations

from math import inf

SETTLED_S = 1.0
"""After this time a message that has passed has reached the owner's queue."""


class Budget:
    """The bytes that may be on their way."""

    def __init__(self, limit: int, each: int = 0) -> None:
        """`each`: what ZeroMQ may need for a message besides its bytes; it counts, too."""
        self.limit = limit
        self.each = each
        self.taken = 0
        """Bytes of all messages that the owner has taken."""
        self.empty_at = -inf
        """When the owner last found no message (seconds)."""
        self._begun = 0
        """Bytes of messages that have begun to pass, and not passed as a whole."""
        self._passed = 0
        """Bytes of all messages that have passed."""
        self._lost = 0
        """Bytes of messages that have passed, and will never be taken."""
        self._marked = (0.0, 0)
        """A time, and the bytes that had passed by then."""

    @property
    def under_way(self) -> int:
        """Bytes that may be in ZeroMQ's memory."""
        return self._begun + self._passed - self._lost - self.taken

    def begin(self, size: int, reserves: bool) -> bool:
        """Whether a message may begin to pass. `reserves`: it counts from now on."""
        under_way, cost = self.under_way, size + self.each
        if under_way > 0 and under_way + cost > self.limit:
            return False
        self._begun += cost if reserves else 0
        return True

    def give_up(self, size: int) -> None:
        """A message that has begun and was reserved will not pass."""
        self._begun -= size + self.each

    def finish(self, size: int, reserves: bool) -> None:
        """A message has passed as a whole."""
        cost = size + self.each
        self._begun -= cost if reserves else 0
        self._passed += cost

    def take(self, size: int) -> None:
        """The owner has taken a message."""
        self.taken += size + self.each

    def settle(self, now: float) -> None:
        """Count messages as lost that have passed long ago, if the owner has found none since."""
        marked_at, passed = self._marked
        if self.empty_at > marked_at + SETTLED_S:
            self._lost = max(self._lost, passed - self.taken)
            self._marked = now, self._passed
