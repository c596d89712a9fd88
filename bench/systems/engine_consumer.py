"""Durable consumer process of a measured Driftline.

Arguments: DIRECTORY FLOW. The process stores the outputs of all nodes as JSON lines, bundle by
bundle, as a run does, and then reports to the measuring process that they are durable.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter

import zmq

from driftline.bench.systems.processes import (
    READY,
    Context,
    inbox,
    messages,
    open_socket,
    outbox,
    pack_stored,
)
from driftline.connectors.sinks.consumer import Consumer, LastStored
from driftline.connectors.sinks.jsonl import JsonLinesConsumer
from driftline.deploy.roles.consumer import ConsumerServer
from driftline.deploy.runtime.loop.runtime import SWITCH_S
from driftline.engine.flow.loading import load_flow
from driftline.engine.wire.bundles import payload_columns
from driftline.engine.wire.messages import Bundle, decode


def words_by_document(bundle: Bundle) -> Iterator[tuple[str, Sequence[object]]]:
    """Yield (document id, words) of the outputs in a bundle; an id may occur several times."""
    for blob in bundle.blobs:
        words, ids, _, _ = payload_columns(blob, 4)
        start = 0
        for document, outputs in groupby(ids):  # without label order, a blob mixes documents
            end = start + len(list(outputs))
            yield str(document), words[start:end]
            start = end


class ReportingConsumer:
    """Consumer that passes bundles to `store` and reports them to the measuring process."""

    def __init__(self, store: Consumer, reports: zmq.Socket[bytes]) -> None:
        self._store = store
        self._reports = reports

    def deliver(self, bundle: Bundle) -> None:
        """Store a bundle, then report it."""
        self._store.deliver(bundle)
        now = perf_counter()
        stored = [(document, words, now) for document, words in words_by_document(bundle)]
        self._reports.send(pack_stored(stored))

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        """Return the last stored bundle."""
        return self._store.last(barrier, groups)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class ConsumerThread(threading.Thread):
    """Consumer thread of one node.

    In a run, each node has its own consumer, which does not wait for writes of other nodes.
    """

    def __init__(self, context: Context, make_consumer: Callable[[str], Consumer]) -> None:
        super().__init__(daemon=True)
        self.inbox: SimpleQueue[bytes] = SimpleQueue()
        self._context = context
        self._server = ConsumerServer(make_consumer)
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        """Address of a node, which changes at each start of the node -> socket for answers."""

    def run(self) -> None:
        """Serve forever; exit the process after an exception, since the run cannot continue."""
        try:
            while True:
                self._server.receive(self.inbox.get())
                for node, answer in self._server.outbox:
                    self._socket(self._server.addresses[node]).send(answer)
                self._server.outbox.clear()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def _socket(self, address: str) -> zmq.Socket[bytes]:
        if address not in self._sockets:
            self._sockets[address] = open_socket(self._context, zmq.PUSH)
            self._sockets[address].connect(address)
        return self._sockets[address]


def main() -> None:
    """Run the process: serve until the parent process exits."""
    directory, flow = Path(sys.argv[1]), load_flow(sys.argv[2])
    context: Context = zmq.Context()

    def make_consumer(barrier: str) -> Consumer:
        reports = outbox(context, directory, "arrivals")  # only one thread uses this socket
        store = JsonLinesConsumer(directory / "outputs", barrier, flow, "bench")
        return ReportingConsumer(store, reports)

    bundles = inbox(context, directory, "consumer")
    ready = outbox(context, directory, "arrivals")  # keep open: closing would drop the message
    ready.send(READY)
    gc.disable()  # like the runtime of a node, whose process contains the consumer in a run
    sys.setswitchinterval(SWITCH_S)
    threads: dict[str, ConsumerThread] = {}
    for message in messages(bundles):
        header, _ = decode(message)
        if header.sender not in threads:
            threads[header.sender] = ConsumerThread(context, make_consumer)
            threads[header.sender].start()
        threads[header.sender].inbox.put(message)
    os._exit(0)  # the threads never end


if __name__ == "__main__":
    main()
