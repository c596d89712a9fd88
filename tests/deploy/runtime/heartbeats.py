"""Run an intake that pauses repeatedly, and producers with ZeroMQ heartbeats.

During a pause the producers' connections time out. This is a separate program because the failure
that it provokes would abort the process. Exit status 0: the process has survived, and messages
arrived after each pause.
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

PRODUCER_PREFIXES, PAUSES = 10, 8
HEARTBEAT_MS, PAUSE_S, BUSY_S = 100, 0.25, 0.1


def producer(address: str, over: threading.Event) -> None:
    """Send forever, whether the connection is up or not."""
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
    """Alternate between pauses and receiving."""
    with closing(InputLog(directory / "log", "test")) as log:
        intake = IntakeSocket(ReceivedSource(log, lambda: 1), "tcp://127.0.0.1:*")
        over = threading.Event()
        threads = [
            threading.Thread(target=producer, args=(intake.address, over))
            for _ in range(PRODUCER_PREFIXES)
        ]
        for thread in threads:
            thread.start()
        with closing(intake):
            for _ in range(PAUSES):
                sleep(PAUSE_S)  # the pause
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
