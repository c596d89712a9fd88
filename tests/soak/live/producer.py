"""A producer of soaks: ``python -m tests.soak.live.producer ADDRESS ID RATE SECONDS [KEY]``.

Sends records at a steady rate, for so many seconds or until SIGTERM, waits until all are stored,
and prints how many there are.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from threading import Event
from time import monotonic

from driftline import Producer

TIMEOUT_S = 300.0
"""How long the front may take; it may be held back for a minute."""


def feed(
    address: str, producer_id: str, rate: float, seconds: float, key: Path | None = None
) -> int:
    """Send records 1, 2, ... for so many seconds. Returns how many are stored."""
    began, asked = monotonic(), Event()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.set())
    with Producer(address, producer_id, timeout_s=TIMEOUT_S, keys=key) as producer:
        for number in range(producer.acknowledged + 1, int(rate * seconds) + 1):
            if asked.wait(max(0.0, began + number / rate - monotonic())):
                break
            producer.send({"producer": producer_id, "number": number})
        producer.flush()
        return producer.acknowledged


if __name__ == "__main__":
    key = Path(sys.argv[5]) if len(sys.argv) > 5 else None
    print(feed(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), key))
