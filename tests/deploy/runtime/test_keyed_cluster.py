"""Real processes over TCP with keys: kills and unauthorised peers do not change the outputs.

The master and the nodes have the key of one host; the front and the consumer, in this process, that
of another one.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.wire.addresses import parse
from tests.deploy.runtime.hosted_run import HostedRun, KeyedRecords
from tests.deploy.runtime.networks import networks
from tests.deploy.runtime.raw_peer import Peer, head
from tests.deploy.runtime.test_strangers_at_members import CURVE_GREETING


def is_listening(address: str) -> bool:
    """Return whether a process listens at the address."""
    try:
        Peer(parse(address).endpoint, shaken=False).close()
    except ConnectionRefusedError:
        return False
    return True


def connect_without_key(address: str) -> None:
    """Connect without a key and announce a large message."""
    with Peer(parse(address).endpoint, shaken=False) as peer:
        peer.try_to_send(CURVE_GREETING + head(1 << 30) + bytes(1 << 16))
        assert peer.is_closed()


def test_cluster_with_keys_delivers_once_despite_kills_and_strangers(tmp_path: Path) -> None:
    of_nodes, of_ends = networks(tmp_path)
    with ExitStack() as stack:
        run = HostedRun(tmp_path, stack, KeyedRecords(2500), network=of_ends)
        config = replace(run.config, network=of_nodes)
        run.start(LocalCluster(config))
        for victim in ("node-1", "master", "node-0"):
            run.await_outputs(500)
            for party in ("node-0", "node-1"):
                connect_without_key(run.front.addresses[party])
            connect_without_key(run.front.address)
            run.run_until(
                lambda: is_listening(config.address("master"))
            )  # outputs continue without a master
            connect_without_key(config.address("master"))
            run.kill(victim)
        run.finish()
        assert run.cluster.restarts >= 3
