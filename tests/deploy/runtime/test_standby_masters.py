"""Real masters that queue in a real ZooKeeper: outputs are the same whatever fails."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import inf
from pathlib import Path
from time import sleep

import pytest
from msgspec.structs import replace

from driftline.coordinator.zookeeper import LeaderQueue, connect
from driftline.deploy.roles.guide import Guide
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.master_process import MASTERS
from driftline.deploy.runtime.metrics.endpoint import port_file_path, read_port_file
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.sources import BadRecord
from tests.deploy.runtime.hosted_run import HostedRun, KeyedRecords
from tests.deploy.runtime.metrics.scraping import ask, samples
from tests.zookeepers import SESSION_S, Ensemble

RECORD_S = 0.003


class SlowRecords(KeyedRecords):
    """Records at a slow rate until `hurry` is set, so that the run outlasts its masters.

    The run does not wait for a master, so at full speed it would complete too early.
    """

    hurry = False

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        for record in super().read(start):
            if not self.hurry:
                sleep(RECORD_S)
            yield record


class StandbyRun(HostedRun):
    """Run with standby masters.

    `metrics`: the address where the processes serve metrics; `forgets`: whether a dead master loses
    its place in the queue at once.
    """

    def __init__(
        self,
        zookeeper: Ensemble,
        directory: Path,
        name: str,
        stack: ExitStack,
        metrics: str = "",
        *,
        forgets: bool = False,
    ) -> None:
        self.paced = SlowRecords(1 << 60)
        super().__init__(directory, stack, self.paced)
        where = f"{zookeeper.addresses}/{name}"
        config = replace(
            self.config, session=1, zookeeper=where, session_s=SESSION_S,
            guide=f"ipc://{self.sockets}/agent", log_level=logging.INFO, metrics=metrics,
            submitted_as="a-name",
        )  # fmt: skip
        self.guide = guide = Guide()
        client = connect(where, SESSION_S)
        stack.callback(client.stop)
        succession = LeaderQueue(
            client,
            MASTERS,
            changed=lambda: self.runtime.call_soon_threadsafe(guide.on_queue_changed),
        )
        self.runtime.add(guide, config.guide, lambda job: succession.leader())
        self.front.addresses["master"] = config.master_at
        self.watch = StatusPoller(every_s=inf)
        self.watch.address = self.runtime.add(self.watch, config.address("poller"))
        guide.addresses["poller"] = self.watch.address
        died = succession.forget if forgets else lambda name: None
        self.start(LocalCluster(config, masters=2, on_crash=died))
        self.meanwhile: Callable[[], None] = lambda: None
        """Further work in each turn of the loop."""

    def supervise(self) -> None:
        self.cluster.supervise(self.front.completed, self.front.max_sent_time)
        self.meanwhile()

    def leader(self) -> str:
        """Return the name of the leading process, as the guide knows it."""
        process, _ = self.guide.leader
        return next(name for name, own in self.cluster._tokens.items() if own == process)

    def scrape(self, number: int) -> dict[tuple[str, ...], float]:
        """Scrape a master; return nothing if it does not answer."""
        port = read_port_file(port_file_path(self.sockets, "master", number))
        answer = ask(f"http://127.0.0.1:{port}/metrics")
        return samples(answer.text) if answer.status == 200 else {}

    def leads_alone(self, number: int) -> bool:
        """Return whether metrics show this master as leader and the other as standby."""
        name = "driftline_master_leads", "master"
        return (self.scrape(number).get(name), self.scrape(1 - number).get(name)) == (1, 0)

    def await_other_leader(self, before: str) -> None:
        self.run_until(lambda: self.guide.leader[0] not in ("", before), "another master leads")

    def finish(self) -> None:
        self.paced.hurry = True
        self.source.last = self.front.max_sent_time
        super().finish()


@pytest.fixture
def run(
    zookeeper: Ensemble, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[StandbyRun]:
    with ExitStack() as stack:
        metrics: str = getattr(request, "param", "")
        yield StandbyRun(zookeeper, tmp_path, f"runs/{request.function.__name__}", stack, metrics)


def count_events(caplog: pytest.LogCaptureFixture, event: str) -> int:
    return sum(vars(r).get("fields", {}).get("event") == event for r in caplog.records)


@pytest.mark.parametrize("run", ["127.0.0.1:0"], indirect=True)
def test_standby_takes_over_from_killed_or_suspended_leader_without_recovery(
    run: StandbyRun, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader that is suspended past its session can do no harm, and metrics show who leads."""
    caplog.set_level(logging.INFO, "driftline")
    run.await_outputs(400)
    name, process = run.leader(), run.guide.leader[0]
    number = int(name[-1])
    run.run_until(lambda: run.leads_alone(number), f"{name} leads, the other master stands by")
    leader, standby = run.scrape(number), run.scrape(1 - number)
    assert leader["driftline_phase", "running"] == 1
    assert leader["driftline_incarnation", "master"] == 1
    assert ("driftline_phase", "running") not in standby
    assert standby["process_resident_memory_bytes",] > 0
    run.kill(name)
    run.await_other_leader(process)
    run.run_until(lambda: count_events(caplog, "taken-over") == 1, "it takes over")
    run.run_until(lambda: run.leads_alone(1 - number), f"{name} stands by, the other master leads")
    after = run.scrape(1 - number)
    assert after["driftline_master_epoch", "master"] > leader["driftline_master_epoch", "master"]
    run.await_outputs(400)
    name, process = run.leader(), run.guide.leader[0]
    pid = run.cluster.pids[name]
    os.kill(pid, signal.SIGSTOP)
    run.await_other_leader(process)
    run.await_outputs(400)
    os.kill(pid, signal.SIGCONT)
    run.run_until(lambda: run.cluster.pids[name] != pid, "its end, as its session is over")
    run.finish()
    assert count_events(caplog, "recovery") == 0


def test_run_survives_loss_of_node_and_leader_and_of_node_without_zookeeper(
    run: StandbyRun, zookeeper: Ensemble
) -> None:
    """Only a leader whose decision is in the registry may begin an incarnation."""
    run.await_outputs(400)
    run.kill(run.leader())
    run.kill("node-1")
    run.await_outputs(400)
    [server] = zookeeper.servers
    server.kill()
    try:
        run.await_outputs(400)
        before = run.cluster.restarts_of["node-1"]
        run.kill("node-1")
        run.run_until(
            lambda: run.cluster.restarts_of["node-1"] > before, "the node is started again"
        )
    finally:
        server.start()
        zookeeper.wait_until_ready()
    run.finish()
    assert run.cluster.restarts >= 3
