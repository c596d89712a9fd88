"""Micro-batches as a measured system: the inverted index on Spark Structured Streaming.

This process is the producer and the consumer, as in every other run. Spark is another process
(`microbatch_worker`), which reads a log and sends the outputs of each batch. Appending to the log
never waits for Spark.

Spark gets more time to warm up than the other systems: on entry, it runs `WARM_UP` batches over
other documents, so that the JVM compiles the measured code before the measurement.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from itertools import cycle, groupby, islice
from operator import itemgetter
from pathlib import Path
from time import monotonic, perf_counter

import zmq

from driftline.bench.measuring.corpus import Documents, expected_outputs
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.microbatch_worker import READY
from driftline.bench.systems.running import Running, start_module
from driftline.bench.systems.sockets import address, open_socket
from driftline.engine.errors import Unavailable
from driftline.engine.wire.codec import pack, unpack
from driftline.pipeline.spark.session import check_spark

WARM_UP = (*[1] * 30, *[20] * 5)
"""Documents of each batch of the warm-up: single documents, then documents from a queue."""

START_S = 120.0
"""Seconds that Spark may take to start, and to warm up."""

END_S = 20.0
"""Seconds that Spark may take to stop."""


class Refused(Unavailable):
    """Spark is not installed, does not support the query, or has failed."""


class MicroBatch(Running):
    """The running query, with its producer and its consumer."""

    def __init__(self, documents: Documents, cores: int = 2, *, real_time: bool = False) -> None:
        self.documents = documents
        self.cores = cores
        self.trigger = "real-time" if real_time else "micro-batch"
        self.batch = -1
        """Number of the last batch taken; a batch that comes again after a failure is dropped."""
        self._numbers = {document: number for number, (document, _) in enumerate(documents)}
        self._directory = tempfile.TemporaryDirectory(prefix="driftline-microbatch-")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._results = open_socket(self._context, zmq.PULL)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start Spark and warm it up. Raises Refused."""
        try:
            check_spark()
        except Unavailable as error:
            raise Refused(str(error)) from None
        self._start()
        self._warm_up()

    def _start(self) -> None:
        directory = Path(self._directory.name)
        self._log = (directory / "log").open("ab", buffering=0)
        self._results.bind(address(directory, "results"))
        arguments = (directory, self.cores, self.trigger)
        self._process = start_module(
            "driftline.bench.systems.microbatch_worker", arguments, stdin=subprocess.PIPE
        )
        ready = self._next(monotonic() + START_S)
        assert ready == READY, ready

    def _warm_up(self) -> None:
        """Send documents with the words of the measured ones, under other ids."""
        deadline = monotonic() + START_S
        texts = cycle(text for _, text in self.documents)
        for number, size in enumerate(WARM_UP):
            some = [(f"warm-up {number}.{i}", text) for i, text in enumerate(islice(texts, size))]
            for document in some:
                self._append(*document)
            missing = sum(expected_outputs(some))
            while missing > 0:
                missing -= len(self._outputs(self._next(deadline)))

    def _next(self, deadline: float) -> object:
        """The next message. Raises Refused for an error of Spark, or if none comes in time."""
        while not self._results.poll(100):
            if monotonic() > deadline:
                raise Refused("Spark has not answered in time")
            ended = self._process is not None and self._process.poll() is not None
            if ended and not self._results.poll(100):
                raise Refused("Spark has ended; its own messages are above")
        message = unpack(self._results.recv())
        if isinstance(message, str) and message != READY:
            raise Refused(message)
        return message

    def _append(self, document: str, text: str) -> None:
        self._log.write(pack({"id": document, "text": text}))

    def _outputs(self, message: object) -> Sequence[bytes]:
        """The packed outputs of a message; none for a batch that has come before."""
        assert isinstance(message, tuple)
        batch, outputs = message
        if batch <= self.batch:
            return ()
        self.batch = batch
        assert isinstance(outputs, tuple)
        return outputs

    def send(self, number: int) -> None:
        """Hand over a document."""
        self._append(*self.documents[number])

    def receive(self) -> list[Arrival]:
        """The outputs that have arrived: at most one batch. Raises Refused if Spark has failed."""
        if not self._results.poll(0):
            return []
        outputs = self._outputs(self._next(monotonic()))
        changes = sorted(self._change(output) for output in outputs)
        now = perf_counter()
        return [
            (number, [word for _, word in run], now)
            for number, run in groupby(changes, key=itemgetter(0))
        ]

    def _change(self, output: bytes) -> tuple[int, str]:
        change = unpack(output)
        assert isinstance(change, tuple)
        word, document, _, _ = change
        return self._numbers[document], word

    def wait(self, timeout_ms: int) -> None:
        """Sleep until a batch has arrived, but no longer than `timeout_ms`."""
        self._results.poll(timeout_ms)

    def close(self) -> None:
        """End Spark and remove its files. May be called any number of times."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()  # the signal to stop
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._log.close()
        self._context.destroy(linger=0)
        self._directory.cleanup()
