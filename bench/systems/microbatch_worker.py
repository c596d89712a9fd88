"""The inverted index on Spark, in a process of its own.

Run by `bench.systems.microbatch` with arguments DIRECTORY CORES TRIGGER. Reads the documents that
the producer appends to DIRECTORY/log, and sends the outputs of each batch. It ends, Spark with it,
when its standard input does.
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
"""The query has been started; anything else that is a text says why not, or why no more."""

LOOK_S = 0.5
"""How often is looked whether the query has failed."""


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
                pass  # nothing ever comes through standard input but its end
            query.stop()
            query.awaitTermination()  # raises what the query has failed of
        except Exception as error:  # which has a text only as long as there is a session
            raise Unavailable(in_a_line(error)) from None


def in_a_line(error: Exception) -> str:
    """What Spark says, without the number of the query, its plan and the trace."""
    told = str(error).rpartition("terminated with exception: ")[2]
    return next((line for line in told.splitlines() if line.strip()), type(error).__name__)


def main() -> None:
    """Run, and tell why not."""
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
