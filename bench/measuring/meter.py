"""Meter: records when each document was due and when its last output arrived.

Latency counts from the scheduled due time, even if the producer sends the document later.
Otherwise a producer blocked by a stalled system would omit the documents that waited (coordinated
omission). The *send delay* is the part of the latency before the document is sent.

Each run has one `RunMeter`; the loops in `measuring.loops` report to it. To the meter, a document
is a number with a count of expected outputs, and an output is a key that occurs once per document.
All times are by `perf_counter`.

    >>> meter = RunMeter(expected=[2])
    >>> meter.record_sent(0, now=1.001, due=1.0)
    >>> meter.record_arrival(0, ["a"], now=1.002)
    >>> meter.record_arrival(0, ["a", "b"], now=1.003)
    >>> [round(ms, 6) for ms in meter.latencies_ms()], meter.lost, meter.duplicated
    ([3.0], 0, 1)
    >>> [round(ms, 6) for ms in meter.send_delay_ms()]
    [1.0]

Cost: one set update per message of outputs; the set of a complete document is dropped.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Arrival = tuple[int, Sequence[object], float]
"""(document number, keys (words) of some of its outputs, time after decoding them)"""


class SentDocument(NamedTuple):
    """Record of a document that was sent, with the latency of its outputs."""

    document: int
    at_s: float  # due time in seconds since the due time of the first document
    send_delay_ms: float  # from the due time until the document was sent
    latency_ms: float | None  # to the last output; None if outputs are missing or not expected
    lost: int  # outputs that are missing
    duplicated: int  # outputs that arrived again
    warmup: bool  # excluded from the statistics


class RunMeter:
    """Timestamps and counts of one run."""

    def __init__(self, expected: Sequence[int], warmup: int = 0) -> None:
        self.expected = expected  # number of outputs of each document
        self.warmup = warmup  # documents before this one are excluded from the statistics
        self.complete = 0  # number of documents whose outputs all arrived
        self.outputs = 0  # number of distinct outputs that arrived
        self.first_sent_s = 0.0
        self.last_arrival_s = 0.0
        self._due_s: list[float] = []
        self._sent_s: list[float] = []  # when document i was sent; documents are sent in order
        self._latency_s: list[float | None] = [None] * len(expected)
        self._keys: dict[int, set[object]] = {}  # keys received so far, per document in flight
        self._duplicates: Counter[int] = Counter()  # outputs of each document that arrived again

    def record_sent(self, number: int, now: float, due: float) -> None:
        """Record that document `number` is sent. Precondition: numbers are 0, 1, 2 and so on."""
        assert number == len(self._sent_s), f"document {number} is not the next one"
        if not number:
            self.first_sent_s = now
        self._sent_s.append(now)
        self._due_s.append(due)
        if self.expected[number]:
            self._keys[number] = set()
        else:  # no words, so no outputs to wait for
            self.complete += 1

    def record_arrival(self, number: int, keys: Sequence[object], now: float) -> None:
        """Record the arrival of outputs of document `number`."""
        seen = self._keys.get(number)
        if seen is None:
            assert number < len(self._sent_s), f"outputs of document {number}, which was not sent"
            self._duplicates[number] += len(keys)
            return
        before = len(seen)
        seen.update(keys)
        new = len(seen) - before
        if new < len(keys):
            self._duplicates[number] += len(keys) - new
        self.outputs += new
        self.last_arrival_s = now
        if len(seen) >= self.expected[number]:
            del self._keys[number]
            self.complete += 1
            self._latency_s[number] = now - self._due_s[number]

    @property
    def sent(self) -> int:
        """Number of documents sent so far."""
        return len(self._sent_s)

    @property
    def in_flight(self) -> int:
        """Number of documents that are sent but not complete."""
        return len(self._keys)

    @property
    def lost(self) -> int:
        """Number of missing outputs of sent documents; at the end of a run, the lost outputs."""
        return sum(self.expected[number] - len(seen) for number, seen in self._keys.items())

    @property
    def duplicated(self) -> int:
        """Number of outputs that arrived again."""
        return self._duplicates.total()

    def documents(self) -> Iterator[SentDocument]:
        """Yield every sent document, including the warm-up, in order."""
        for number, (due, sent) in enumerate(zip(self._due_s, self._sent_s, strict=True)):
            seconds = self._latency_s[number]
            yield SentDocument(
                number,
                due - self._due_s[0],
                1000 * (sent - due),
                None if seconds is None else 1000 * seconds,
                self.expected[number] - len(self._keys[number]) if number in self._keys else 0,
                self._duplicates[number],
                number < self.warmup,
            )

    def latencies_ms(self) -> list[float]:
        """Return the latency of every complete document after the warm-up, in document order."""
        return [1000 * s for s in self._latency_s[self.warmup :] if s is not None]

    def send_delay_ms(self) -> list[float]:
        """Return the send delay of every sent document after the warm-up, in document order."""
        pairs = zip(self._sent_s, self._due_s, strict=True)
        return [1000 * (sent - due) for sent, due in list(pairs)[self.warmup :]]

    def latency_figures(self) -> dict[str, float]:
        """Return the figures of an open-loop run, without its warm-up.

        The figures are the latency percentiles; those of the producer's send delay,
        `send_delay_p99_ms` and `send_delay_max_ms`; the number of `latencies` (complete documents
        that have words); and the numbers of `lost` and `duplicated` outputs. The last two include
        the warm-up.
        """
        latencies, send_delays = self.latencies_ms(), percentiles(self.send_delay_ms())
        return {
            **percentiles(latencies),
            "send_delay_p99_ms": send_delays["p99_ms"],
            "send_delay_max_ms": send_delays["max_ms"],
            "latencies": len(latencies),
            "lost": self.lost,
            "duplicated": self.duplicated,
        }

    def throughput_figures(self, cpu_cores: float) -> dict[str, float]:
        """Return the figures of a closed-loop run, from the first document to the last output.

        `cpu_cores`: average number of busy cores, summed over all processes.
        """
        elapsed = self.last_arrival_s - self.first_sent_s
        return {
            "documents_per_s": self.complete / elapsed if elapsed > 0 else 0.0,
            "outputs_per_s": self.outputs / elapsed if elapsed > 0 else 0.0,
            "cpu_cores": cpu_cores,
            "lost": self.lost,
            "duplicated": self.duplicated,
        }

    def validate(self) -> None:
        """Check the invariants; for tests."""
        assert self.complete + self.in_flight == self.sent <= len(self.expected)
        assert all(0 <= len(seen) < self.expected[i] for i, seen in self._keys.items())
        assert self.outputs + self.lost == sum(self.expected[: self.sent])


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50_ms, p75_ms, p95_ms, p99_ms and max_ms, each an observed value (nearest rank)."""
    ranked = sorted(values)
    by_name = {f"p{p}_ms": _nearest_rank(ranked, p) for p in (50, 75, 95, 99)}
    return {**by_name, "max_ms": _nearest_rank(ranked, 100)}


def _nearest_rank(ranked: Sequence[float], percent: int) -> float:
    """Return the least value that `percent` of the values do not exceed; NaN if there are none."""
    return ranked[-(-len(ranked) * percent // 100) - 1] if ranked else float("nan")
