"""The process of a peer. Arguments: NAME, and the file of the load; prints what was observed.

It is alone with the peer, so that its memory is the peer's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import psutil

from driftline.bench.measuring.load import Load
from driftline.bench.systems.peers.peer import Peer, observe
from driftline.bench.systems.service import MIB


def _fts5(directory: Path) -> Peer:
    from driftline.bench.systems.peers.sqlite import Fts5

    return Fts5(directory)


def _redis(directory: Path) -> Peer:
    from driftline.bench.systems.peers.redis import Redis

    return Redis(directory)


def _tantivy(every_s: float) -> Callable[[Path], Peer]:
    def make(directory: Path) -> Peer:
        from driftline.bench.systems.peers.tantivy_index import Tantivy

        return Tantivy(directory, every_s)

    return make


PEERS: dict[str, Callable[[Path], Peer]] = {
    "tantivy": _tantivy(0.0),
    "tantivy-100ms": _tantivy(0.1),
    "sqlite-fts5": _fts5,
    "redis-search": _redis,
}


def main(name: str, load: Path) -> None:
    """Observe a peer."""
    process = psutil.Process()
    read = Load.read(load)
    before_mib = process.memory_info().rss / MIB
    with TemporaryDirectory(prefix="driftline-bench-") as directory:
        peer = PEERS[name](Path(directory))
        began, cpu = perf_counter(), sum(process.cpu_times()[:2])
        observed = observe(peer, read)
        busy = (sum(process.cpu_times()[:2]) - cpu) / (perf_counter() - began)
        observed.memory_mib[name] = process.memory_info().rss / MIB - before_mib
        for server in process.children():
            busy += sum(server.cpu_times()[:2]) / (perf_counter() - began)
            observed.memory_mib[name] += server.memory_info().rss / MIB
        observed.cores[name] = busy
        peer.close()
    print(observed.as_json())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
