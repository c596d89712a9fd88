"""Real masters that queue up in a real ZooKeeper: whatever befalls them, outputs are the same."""

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
from tests.deploy.runtime.hosted_run import HostedRun, Records
from tests.deploy.runtime.metrics.scraping import ask, samples
from tests.zookeepers import SESSION_S, Ensemble

RECORD_S = 0.003


class Paced(Records):
    """The records, so slowly that a run outlasts masters, as it waits for none; until `hurry`."""

    hurry = False

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        for record in super().read(start):
            if not self.hurry:
                sleep(RECORD_S)
            yield record


class Run(HostedRun):
    """A run with standby masters. `metrics`: where the others serve them; `forgets`: whether a
    master that has died loses its place at once."""

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
        self.paced = Paced(1 << 60)
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
        self.start(LocalCluster(config, masters=2, on_death=died))
        self.meanwhile: Callable[[], None] = lambda: None
        """What else is done in the loop."""

    def supervise(self) -> None:
        self.cluster.supervise(self.front.completed, self.front.max_sent_time)
        self.meanwhile()

    def leader(self) -> str:
        """The name of the process that leads, as the guide knows it."""
        process, _ = self.guide.leader
        return next(name for name, own in self.cluster._tokens.items() if own == process)

    def scraped(self, number: int) -> dict[tuple[str, ...], float]:
        """What a master serves; nothing while it does not."""
        port = read_port_file(port_file_path(self.sockets, "master", number))
        answer = ask(f"http://127.0.0.1:{port}/metrics")
        return samples(answer.text) if answer.status == 200 else {}

    def leads_alone(self, number: int) -> bool:
        """Whether this master says that it leads, and the other one that it stands by."""
        name = "driftline_master_leads", "master"
        return (self.scraped(number).get(name), self.scraped(1 - number).get(name)) == (1, 0)

    def another_leads(self, before: str) -> None:
        self.go(lambda: self.guide.leader[0] not in ("", before), "another master leads")

    def ends(self) -> None:
        self.paced.hurry = True
        self.source.last = self.front.max_sent_time
        super().ends()


@pytest.fixture
def run(zookeeper: Ensemble, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    with ExitStack() as stack:
        metrics: str = getattr(request, "param", "")
        yield Run(zookeeper, tmp_path, f"runs/{request.function.__name__}", stack, metrics)


def count_events(caplog: pytest.LogCaptureFixture, event: str) -> int:
    return sum(vars(r).get("fields", {}).get("event") == event for r in caplog.records)


@pytest.mark.parametrize("run", ["127.0.0.1:0"], indirect=True)
def test_standbys_take_over_from_leaders_that_are_killed_or_stand_still_without_a_recovery(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader that stood still past its session can do no harm; metrics tell who leads."""
    caplog.set_level(logging.INFO, "driftline")
    run.outputs(400)
    name, process = run.leader(), run.guide.leader[0]
    number = int(name[-1])
    run.go(lambda: run.leads_alone(number), f"{name} leads, the other master stands by")
    leader, standby = run.scraped(number), run.scraped(1 - number)
    assert leader["driftline_phase", "running"] == 1
    assert leader["driftline_incarnation", "master"] == 1
    assert ("driftline_phase", "running") not in standby
    assert standby["process_resident_memory_bytes",] > 0
    run.kill(name)
    run.another_leads(process)
    run.go(lambda: count_events(caplog, "taken-over") == 1, "it takes over")
    run.go(lambda: run.leads_alone(1 - number), f"{name} stands by, the other master leads")
    after = run.scraped(1 - number)
    assert after["driftline_master_epoch", "master"] > leader["driftline_master_epoch", "master"]
    run.outputs(400)
    name, process = run.leader(), run.guide.leader[0]
    pid = run.cluster.pids[name]
    os.kill(pid, signal.SIGSTOP)
    run.another_leads(process)
    run.outputs(400)
    os.kill(pid, signal.SIGCONT)
    run.go(lambda: run.cluster.pids[name] != pid, "its end, as its session is over")
    run.ends()
    assert count_events(caplog, "recovery") == 0


def test_a_node_and_the_leader_die_together_and_a_node_dies_without_zookeeper(
    run: Run, zookeeper: Ensemble
) -> None:
    """Only a leader whose decision is written may begin an incarnation."""
    run.outputs(400)
    run.kill(run.leader())
    run.kill("node-1")
    run.outputs(400)
    [server] = zookeeper.servers
    server.kill()
    try:
        run.outputs(400)
        before = run.cluster.restarts_of["node-1"]
        run.kill("node-1")
        run.go(lambda: run.cluster.restarts_of["node-1"] > before, "the node is started again")
    finally:
        server.start()
        zookeeper.wait_until_ready()
    run.ends()
    assert run.cluster.restarts >= 3
