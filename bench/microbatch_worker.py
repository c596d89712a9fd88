"""The inverted index on Spark, in a process of its own.

Run by `bench.microbatch` as ``python -m bench.microbatch_worker DIRECTORY CORES TRIGGER``. Reads the
documents that the producer appends to DIRECTORY/log, and sends the outputs of each batch. It ends,
Spark with it, when its standard input does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import zmq

from bench.floor_worker import address
from engine.codec import pack
from engine.errors import Unavailable
from engine.loading import load_flow
from pipeline.session import session

READY = "ready"
"""The query has been started; anything else that is a text says why not, or why no more."""


def run(directory: Path, cores: str, trigger: str, results: zmq.Socket[bytes]) -> None:
    """Run the query until standard input ends."""
    from pipeline import microbatch

    def deliver(batch: int, outputs: Sequence[bytes]) -> None:
        results.send(pack((batch, outputs)))

    conf = {**microbatch.CONF, "spark.sql.shuffle.partitions": cores}
    with session("micro-batch", f"local[{cores}]", conf) as spark:
        query = microbatch.start(
            spark,
            load_flow("index"),
            directory / "log",
            directory / "checkpoint",
            deliver,
            real_time=trigger == "real-time",
        )

        def stop_in_the_end() -> None:
            sys.stdin.read()
            query.stop()

        Thread(target=stop_in_the_end, daemon=True).start()
        results.send(pack(READY))
        query.awaitTermination()


def first_line(error: Exception) -> str:
    """What Spark says, without the plans and traces that follow."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def main() -> None:
    """Run, and tell why not."""
    directory, cores, trigger = sys.argv[1:]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    results = context.socket(zmq.PUSH)
    results.set_hwm(0)
    results.connect(address(Path(directory), "results"))
    try:
        run(Path(directory), cores, trigger, results)
    except ImportError as error:
        results.send(pack(f"Spark cannot be used ({error}): pip install 'driftline[spark]'"))
    except Unavailable as error:
        results.send(pack(str(error)))
    except Exception as error:
        results.send(pack(first_line(error)))
    context.destroy(linger=1000)


if __name__ == "__main__":
    main()
