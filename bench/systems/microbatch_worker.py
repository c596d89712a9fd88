"""The process that runs the inverted index on Spark.

`bench.systems.microbatch` starts it with arguments DIRECTORY CORES TRIGGER. It reads the documents
that the producer appends to DIRECTORY/log, and sends the outputs of each batch. At the end of its
standard input it ends, with Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from select import select

import zmq

from driftline.bench.systems.sockets import address, open_socket
from driftline.engine.errors import Unavailable
from driftline.engine.flow.loading import load_flow
from driftline.engine.wire.codec import pack
from driftline.pipeline.spark.session import session

READY = "ready"
"""Sent once the query has started. Any other message that is a text is an error of Spark."""

LOOK_S = 0.5
"""Seconds between two checks whether the query has failed."""


def run(directory: Path, cores: str, trigger: str, results: zmq.Socket[bytes]) -> None:
    """Run the query until standard input ends."""
    from driftline.pipeline.microbatch.query import CONF, start

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
                real_time=trigger == "real-time",
            )
            results.send(pack(READY))
            while query.isActive and not select([sys.stdin], [], [], LOOK_S)[0]:
                pass  # standard input becomes readable only at its end
            query.stop()
            query.awaitTermination()  # raises the error of a failed query
        except Exception as error:  # its text needs the session: read it before the session ends
            raise Unavailable(in_a_line(error)) from None


def in_a_line(error: Exception) -> str:
    """The message of an error of Spark, without the query's number, its plan and the trace."""
    message = str(error).rpartition("terminated with exception: ")[2]
    return next((line for line in message.splitlines() if line.strip()), type(error).__name__)


def main() -> None:
    """Entry point of the process: run the query, and send its error if it fails."""
    directory, cores, trigger = sys.argv[1:]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    results = open_socket(context, zmq.PUSH)
    results.connect(address(Path(directory), "results"))
    try:
        run(Path(directory), cores, trigger, results)
    except Unavailable as error:
        results.send(pack(str(error)))
    context.destroy(linger=1000)


if __name__ == "__main__":
    main()
