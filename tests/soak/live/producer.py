"""A producer of soaks: ``python -m tests.soak.live.producer ADDRESS ID RATE SECONDS [KEY]``.

Send records at a steady rate until the time is over or SIGTERM arrives, wait until all are stored,
and print their number.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from threading import Event
from time import monotonic

from driftline import Producer

TIMEOUT_S = 300.0
"""How long the front may take; back-pressure may last for a minute."""


def feed(
    address: str, producer_id: str, rate: float, seconds: float, key: Path | None = None
) -> int:
    """Send records 1, 2, ... for `seconds`; return the number of stored ones."""
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
