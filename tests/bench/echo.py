"""System under test that returns prepared answers after a fixed delay."""

from __future__ import annotations

from collections import deque
from time import perf_counter

from driftline.bench.measuring.meter import Arrival


class EchoSystem:
    """System whose answer to document i is ready `delay_s` after the document was sent."""

    def __init__(self, answers: list[list[str]], delay_s: float = 0.0) -> None:
        self.answers = answers
        self.delay_s = delay_s
        self.waiting: deque[tuple[float, Arrival]] = deque()
        self.in_flight_max = 0
        self.sent: list[int] = []

    def send(self, number: int) -> None:
        self.sent.append(number)
        if self.answers[number]:
            ready = perf_counter() + self.delay_s
            self.waiting.append((ready, (number, self.answers[number], ready)))
        self.in_flight_max = max(self.in_flight_max, len(self.waiting))

    def receive(self) -> list[Arrival]:
        if self.waiting and self.waiting[0][0] <= perf_counter():
            return [self.waiting.popleft()[1]]
        return []

    def wait(self, timeout_ms: int) -> None:
        pass
