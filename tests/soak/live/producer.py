"""A producer of the live soak: ``python -m tests.soak.live.producer ADDRESS ID RATE SECONDS``.

Sends records at a steady rate, waits until all are stored, and prints how many there are.
"""

from __future__ import annotations

import sys
from threading import Event
from time import monotonic

from driftline import Producer

TIMEOUT_S = 300.0
"""How long the front may take; it may be held back for a minute."""


def feed(address: str, producer_id: str, rate: float, seconds: float) -> int:
    """Send records 1, 2, ... for so many seconds. Returns how many are stored."""
    began, never = monotonic(), Event()
    with Producer(address, producer_id, timeout_s=TIMEOUT_S) as producer:
        for number in range(producer.acknowledged + 1, int(rate * seconds) + 1):
            never.wait(max(0.0, began + number / rate - monotonic()))
            producer.send({"producer": producer_id, "number": number})
        producer.flush()
        return producer.acknowledged


if __name__ == "__main__":
    print(feed(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])))
