"""Drives a run: fronts, receivers and processes, from their start until every front has its `Stop`.

Takes signals: at the first one the run is asked to end in good order. Gives the outcome. A process
that dies is noticed and replaced meanwhile, and what the run has done is shown.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from rich.console import Console

from driftline.deploy.local.config import RunConfig
from driftline.deploy.local.progress import RunProgress
from driftline.deploy.local.report import asked_to_end
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.watch import Watch
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.signals import Signals
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.errors import Unavailable
from driftline.engine.events import about, log
from driftline.engine.ui.consoles import ProgressView
from driftline.engine.wire.messages import Stop

END_S = 5.0
"""How long the last messages of the master may take; and how long nodes may take to end."""


def drive(
    runtime: Runtime,
    cluster: LocalCluster,
    fronts: Sequence[Front],
    watch: Watch,
    progress: RunProgress,
    config: RunConfig,
    signals: Signals,
    console: Console,
) -> Stop:
    """Run fronts and receivers, and supervise the cluster, until every front has its `Stop`.

    At the first signal the run is asked to end in good order.
    """
    chance = random.Random(config.seed)
    kill_at = monotonic() + config.kill_every_s if config.kill_every_s else float("inf")
    master_ended_at: float | None = None
    cluster.wake(runtime)
    view = ProgressView(console, [front.source.name for front in fronts])
    with view, signals.noted(), runtime.undisturbed():
        more = False
        while True:
            more = runtime.step(more, wait_s=0.05)
            outcomes = [front.outcome for front in fronts if front.outcome is not None]
            if len(outcomes) == len(fronts):
                break
            signals.check()
            if signals.asked is not None and not fronts[0].draining:
                name = signals.asked.name
                told = about("asked-to-end", signal=name)
                log.info("%s: %s", name, asked_to_end(config.policy), extra=told)
                for front in fronts:
                    front.drain()
            now = monotonic()
            progress.tell(now, watch, view)  # at once when the nodes have answered
            if now >= kill_at and signals.asked is None:  # kills may be too quick for a good end
                cluster.kill_one(chance)
                kill_at = now + (config.kill_every_s or 0.0)
            if not cluster.is_due(now):
                continue
            cluster.supervise(
                max(front.settled for front in fronts),
                max(front.furthest for front in fronts),
                watch,
            )
            if not cluster.master_ended:
                master_ended_at = None
            elif master_ended_at is None:
                master_ended_at = now
            elif now - master_ended_at > END_S:  # the fronts have missed the last messages
                cluster.ask_again()
                master_ended_at = None
        _await_nodes(runtime, cluster)
        if not outcomes[0].error:
            progress.end(monotonic(), watch, view)
    return outcomes[0]


def _await_nodes(runtime: Runtime, cluster: LocalCluster) -> None:
    """Wait `END_S` at most until the nodes have ended; the cluster kills the others."""
    until = monotonic() + END_S
    with suppress(Unavailable):  # how the run ended is known already
        while not cluster.nodes_ended and monotonic() < until:
            runtime.step(wait_s=0.05)
            cluster.supervise()
