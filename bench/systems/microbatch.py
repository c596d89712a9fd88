"""Micro-batches as a measured system: the inverted index on Spark Structured Streaming.

The measuring process is the producer and the consumer, as in other runs with ends in memory. Spark
runs in another process, whose entry point is this module, with arguments DIRECTORY CORES. That
process reads the documents that the producer appends to DIRECTORY/log, and sends the outputs of
each batch. When its standard input ends, it stops Spark and exits. Appending never waits for Spark.

Spark gets more warm-up than the other systems: `MicroBatch.start` runs the batches of `WARM_UP`
over documents with other ids, so that the JVM compiles the measured code before the measurement.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import cycle, groupby, islice
from operator import itemgetter
from pathlib import Path
from select import select
from time import monotonic, perf_counter

import zmq

from driftline.bench.measuring.corpus import Documents, expected_outputs
from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.processes import (
    Context,
    StartedProcesses,
    address,
    open_socket,
    outbox,
    start_module,
)
from driftline.engine.errors import Unavailable
from driftline.engine.flow.loading import load_flow
from driftline.engine.wire.codec import pack, unpack
from driftline.pipeline.session import session

READY = "ready"
"""Message sent once the query has started. Any other string is an error of Spark."""

QUERY_CHECK_S = 0.5
"""Interval between checks whether the query has failed."""

WARM_UP = (*[1] * 30, *[20] * 5)
"""Number of documents in each warm-up batch: single documents, then groups as under load."""

START_TIMEOUT_S = 120.0
"""Timeout for starting Spark, and again for warming it up."""

STOP_TIMEOUT_S = 20.0


class MicroBatch(StartedProcesses):
    """The running query, with its producer and consumer."""

    def __init__(self, documents: Documents, cores: int = 2) -> None:
        self.documents = documents
        self.cores = cores
        self.last_batch = -1
        """Number of the last received batch; batches that Spark repeats are dropped."""
        self._numbers = {document: number for number, (document, _) in enumerate(documents)}
        """Id -> number of a document."""
        self._directory = tempfile.TemporaryDirectory(prefix="driftline-microbatch-")
        self._context: Context = zmq.Context()
        self._results = open_socket(self._context, zmq.PULL)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start Spark and warm it up. Raises Unavailable."""
        directory = Path(self._directory.name)
        self._log = (directory / "log").open("ab", buffering=0)
        self._results.bind(address(directory, "results"))
        arguments = (directory, self.cores)
        self._process = start_module(
            "driftline.bench.systems.microbatch", arguments, stdin=subprocess.PIPE
        )
        ready = self._next_message(monotonic() + START_TIMEOUT_S)
        assert ready == READY, ready
        self._warm_up()

    def _warm_up(self) -> None:
        """Run the warm-up: send documents with the measured texts under other ids."""
        deadline = monotonic() + START_TIMEOUT_S
        texts = cycle(text for _, text in self.documents)
        for number, size in enumerate(WARM_UP):
            batch = [(f"warm-up {number}.{i}", text) for i, text in enumerate(islice(texts, size))]
            for document in batch:
                self._append(*document)
            missing = sum(expected_outputs(batch))
            while missing > 0:
                missing -= len(self._outputs(self._next_message(deadline)))

    def _next_message(self, deadline: float) -> object:
        """Return the next message. Raises Unavailable if Spark has failed, or after `deadline`."""
        while not self._results.poll(100):
            if monotonic() > deadline:
                raise Unavailable(f"Spark did not answer within {START_TIMEOUT_S:g} s")
            has_exited = self._process is not None and self._process.poll() is not None
            if has_exited and not self._results.poll(100):
                raise Unavailable("Spark exited; see its messages above")
        message = unpack(self._results.recv())
        if isinstance(message, str) and message != READY:
            raise Unavailable(message)
        return message

    def _append(self, document: str, text: str) -> None:
        self._log.write(pack({"id": document, "text": text}))

    def _outputs(self, message: object) -> Sequence[bytes]:
        """Return the encoded outputs of a batch; none if the batch was received before."""
        assert isinstance(message, tuple)
        batch, outputs = message
        if batch <= self.last_batch:
            return ()
        self.last_batch = batch
        assert isinstance(outputs, tuple)
        return outputs

    def send(self, number: int) -> None:
        """Append document `number` to the log."""
        self._append(*self.documents[number])

    def receive(self) -> list[Arrival]:
        """Return the outputs of at most one batch. Raises Unavailable if Spark has failed."""
        if not self._results.poll(0):
            return []
        outputs = self._outputs(self._next_message(monotonic()))
        changes = sorted(self._change(output) for output in outputs)
        now = perf_counter()
        return [
            (number, [word for _, word in changes_of_document], now)
            for number, changes_of_document in groupby(changes, key=itemgetter(0))
        ]

    def _change(self, output: bytes) -> tuple[int, str]:
        """Return (number of the document, word) of an output."""
        change = unpack(output)
        assert isinstance(change, tuple)
        word, document, _, _ = change
        return self._numbers[document], word

    def wait(self, timeout_ms: int) -> None:
        """Sleep until a batch arrives, at most `timeout_ms`."""
        self._results.poll(timeout_ms)

    def close(self) -> None:
        """Stop Spark and remove its files. Idempotent."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()  # tells the process to stop
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._log.close()
        self._context.destroy(linger=0)
        self._directory.cleanup()


def run(directory: Path, cores: str, results: zmq.Socket[bytes]) -> None:
    """Run the query until standard input ends."""
    from driftline.pipeline.microbatch import CONF, start

    def deliver(batch: int, outputs: Sequence[bytes]) -> None:
        results.send(pack((batch, outputs)))

    conf = {**CONF, "spark.sql.shuffle.partitions": cores}
    with session("micro-batch", f"local[{cores}]", conf) as spark:
        try:
            query = start(
                spark,
                load_flow("driftline.index"),
                directory / "log",
                directory / "checkpoint",
                deliver,
            )
            results.send(pack(READY))
            while query.isActive and not select([sys.stdin], [], [], QUERY_CHECK_S)[0]:
                pass  # standard input becomes readable only at its end
            query.stop()
            query.awaitTermination()  # raises the error of a failed query
        except Exception as error:  # its message can be read only while the session runs
            raise Unavailable(summarise_error(error)) from None


def summarise_error(error: Exception) -> str:
    """Return the message of a Spark error, without the query's number, its plan and the trace."""
    message = str(error).rpartition("terminated with exception: ")[2]
    return next((line for line in message.splitlines() if line.strip()), type(error).__name__)


def main() -> None:
    """Run the process: run the query, and send its error if it fails."""
    directory, cores = sys.argv[1:]
    context: Context = zmq.Context()
    results = outbox(context, Path(directory), "results")
    try:
        run(Path(directory), cores, results)
    except Unavailable as error:
        results.send(pack(str(error)))
    context.destroy(linger=1000)


if __name__ == "__main__":
    main()
