"""Strangers who hold as many connections as they can, and make a new one for each that is closed.

    python -m tests.deploy.host.flood PORT COUNT

Says "there" once it has made so many, and ends with its standard input.
"""

from __future__ import annotations

import errno
import resource
import select
import socket
import sys
from contextlib import suppress

from tests.deploy.host.test_strangers_at_members import CURVE_GREETING

_UNDER_WAY = (0, errno.EINPROGRESS)


def flood(port: int, count: int) -> None:
    """Until standard input ends."""
    resource.setrlimit(resource.RLIMIT_NOFILE, 2 * (resource.getrlimit(resource.RLIMIT_NOFILE)[1],))
    poller = select.epoll()
    poller.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    held: dict[int, socket.socket] = {}
    made = said = 0
    while True:
        for _ in range(min(100, count - len(held))):
            one = socket.socket()
            one.setblocking(False)
            assert one.connect_ex(("127.0.0.1", port)) in _UNDER_WAY
            held[one.fileno()] = one
            poller.register(one.fileno(), select.EPOLLOUT | select.EPOLLONESHOT)
            made += 1
        if made >= count and not said:
            said = print("there", flush=True) or 1
        for descriptor, event in poller.poll(0 if len(held) < count else 1):
            if descriptor == sys.stdin.fileno():
                return
            one = held[descriptor]
            if event & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLIN) and not _reads(one):
                held.pop(descriptor).close()
                continue
            if event & select.EPOLLOUT:
                with suppress(OSError):
                    one.send(CURVE_GREETING[: made % 65])
            poller.modify(descriptor, select.EPOLLIN | select.EPOLLONESHOT)


def _reads(one: socket.socket) -> bool:
    try:
        return bool(one.recv(1 << 16))
    except BlockingIOError:
        return True
    except OSError:
        return False


if __name__ == "__main__":
    flood(int(sys.argv[1]), int(sys.argv[2]))
