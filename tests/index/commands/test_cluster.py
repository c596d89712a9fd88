"""`driftline serve` on a single-machine cluster: agents run the master and the nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import httpx

from driftline.deploy.runtime.sockets.transport import TransportConfig
from tests.deploy.cluster.machine import COMMAND, Machine
from tests.deploy.local.command import driftline as run
from tests.index.truth.service import ServiceProcess
from tests.zookeepers import Ensemble

WITHIN_S = 90.0
"""A read waits 10 s for its T; on a busy machine the restart of a node may take longer."""


@contextmanager
def served(machine: Machine, *options: str) -> Iterator[ServiceProcess]:
    """Start a service on the cluster."""
    service = ServiceProcess(machine.folder / "web", *machine.place, "--name", "web", *options)
    try:
        service.start()
        yield service
    finally:
        service.close()


class AcknowledgedWrites:
    """Client that puts documents and remembers the acknowledged labels."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service = service
        self.labels: dict[str, str] = {}

    def put(self, id: str) -> None:
        with httpx.Client(base_url=self.service.url, timeout=30.0) as http:
            response = http.put(f"/documents/{id}", json={"text": f"word {id}"})
            assert response.status_code == 200, response.text
            self.labels[id] = response.json()["label"]

    def check(self) -> None:
        """Check that searches and the change stream contain all acknowledged writes once."""
        with httpx.Client(base_url=self.service.url, timeout=30.0) as http:
            last = max(self.labels.values())
            search, until = f"/search?q=word&limit=100&after={last}", monotonic() + WITHIN_S
            while (found := http.get(search)).status_code == 503:
                assert monotonic() < until, found.text
            assert {hit["id"]: hit["label"] for hit in found.json()["hits"]} == self.labels
            with http.stream("GET", "/changes", params={"from": "0" * 14}) as stream:
                ids: list[str] = []
                for line in stream.iter_lines():
                    if line.startswith("id: ") and (label := line[4:]) not in ids:
                        ids.append(label)
                    if ids and ids[-1] >= last:
                        break
        assert ids == sorted(self.labels.values())


def test_cluster_service_loses_no_write_when_processes_are_killed_and_scales(
    tmp_path: Path, zookeeper: Ensemble
) -> None:
    keys = tmp_path / "keys"
    make_keys = COMMAND, "keys", str(keys), "--hosts", "a", "--consumer", "journal=*"
    subprocess.run(make_keys, check=True, stdout=subprocess.DEVNULL)
    network = "--bind", "127.0.0.1", "--keys", str(keys / "a.key")
    options = *network, "--journal-key", str(keys / "journal.key")
    client_network = TransportConfig("tcp", "127.0.0.1", keys=str(keys / "a.key"))
    agents = Machine(tmp_path, zookeeper, ("master", "node"), network, network=client_network)
    with agents as machine, served(machine, *options) as service:
        client = AcknowledgedWrites(service)
        client.put("a")
        service.kill()
        service.start()  # the flow is still running
        client.put("b")
        service.processes()["journal"].kill()
        client.put("without-journal")
        client.check()
        for kind in ("node", "master"):
            machine.kill(kind)
            client.put(f"without-{kind}")
            machine.start(kind)
            client.put(f"with-{kind}")
            client.check()
        machine.command("rescale", "web", 2)
        client.put("by-two")
        client.check()
        [flow] = machine.status()["flows"]
        assert (flow["state"], len(flow["nodes"])) == ("running", 2)
        assert flow["inputs"][0]["state"] == "reading"
        machine.command("savepoint", "web", "--output", tmp_path / "saved", *network)
        assert "web has ended: drained on request" in machine.command("stop", "web")
        assert service.wait() == 0
        log = service.log.read_text()
        assert "driftline stop: draining, new requests are rejected" in log
        assert "input-0, journal: in the --state directory of `driftline serve`" in machine.command(
            "verify", "web"
        )
        done = run("verify", str(machine.folder / "web"))
        assert done.returncode == 0, done.stdout
        for part in ("journal", "flows/web/input-0", "documents-0"):
            assert f"ok       {machine.folder / 'web' / part} (" in done.stdout
        service.start()
        client.check()
        machine.command("cancel", "web")
        assert service.wait() == 0
        since = service.log.read_text().removeprefix(log)
        assert "cancelled by a command" in since
