"""An intake that takes nothing for a while, again and again, and producers with heartbeats.

Their connections break off meanwhile. A program of its own: what it provokes would end the process.
Exit status 0: it lives, and messages arrived after each pause.
"""

from __future__ import annotations

import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic, sleep

import zmq

from driftline.connectors.logs.inputlog import InputLog
from driftline.connectors.logs.received import ReceivedSource
from driftline.deploy.runtime.sockets.intake_socket import IntakeSocket

PRODUCERS, PAUSES = 10, 8
HEARTBEAT_MS, PAUSE_S, BUSY_S = 100, 0.25, 0.1


def producer(address: str, over: threading.Event) -> None:
    """Sends for ever, whether its connection holds or not."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.IMMEDIATE, 1)
        dealer.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        dealer.connect(address)
        while not over.wait(0.01):
            with suppress(zmq.Again):
                for _ in range(4):
                    dealer.send(bytes(60), zmq.NOBLOCK)


def main(directory: Path) -> None:
    """Pause, and take, in turns."""
    with closing(InputLog(directory / "log", "test")) as log:
        intake = IntakeSocket(ReceivedSource(log, lambda: 1), "tcp://127.0.0.1:*")
        over = threading.Event()
        threads = [
            threading.Thread(target=producer, args=(intake.address, over)) for _ in range(PRODUCERS)
        ]
        for thread in threads:
            thread.start()
        with closing(intake):
            for _ in range(PAUSES):
                sleep(PAUSE_S)  # the pause itself
                before, until = intake.malformed, monotonic() + BUSY_S
                while monotonic() < until or intake.malformed == before:
                    intake.socket.poll(50)
                    intake.handle_input()
                    intake.turn()
            over.set()
            for thread in threads:
                thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
