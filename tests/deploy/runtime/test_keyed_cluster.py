"""Real processes that speak by TCP with keys: kills and strangers leave the outputs as they are.

The master and the nodes have the key of one host; the front and the consumer, in this process, that
of another one.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.wire.addresses import parse
from tests.deploy.runtime.hosted_run import HostedRun, Records
from tests.deploy.runtime.networks import networks
from tests.deploy.runtime.raw_peer import Peer, head
from tests.deploy.runtime.test_strangers_at_members import CURVE_GREETING


def is_there(address: str) -> bool:
    """Whether somebody listens."""
    try:
        Peer(parse(address).endpoint, shaken=False).close()
    except ConnectionRefusedError:
        return False
    return True


def stranger(address: str) -> None:
    """Someone without a key, who claims to have much to say."""
    with Peer(parse(address).endpoint, shaken=False) as peer:
        peer.try_to_send(CURVE_GREETING + head(1 << 30) + bytes(1 << 16))
        assert peer.is_closed()


def test_cluster_with_keys_delivers_once_despite_kills_and_strangers(tmp_path: Path) -> None:
    of_nodes, of_ends = networks(tmp_path)
    with ExitStack() as stack:
        run = HostedRun(tmp_path, stack, Records(2500), network=of_ends)
        config = replace(run.config, network=of_nodes)
        run.start(LocalCluster(config))
        for victim in ("node-1", "master", "node-0"):
            run.outputs(500)
            for party in ("node-0", "node-1"):
                stranger(run.front.addresses[party])
            stranger(run.front.address)
            run.go(lambda: is_there(config.address("master")))  # outputs continue without one
            stranger(config.address("master"))
            run.kill(victim)
        run.ends()
        assert run.cluster.restarts >= 3
