"""`driftline serve` on a cluster of one machine: agents run the master and the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.deploy.cluster.machine import Machine
from tests.index.truth.service import Service


@contextmanager
def served(machine: Machine, *options: str) -> Iterator[Service]:
    """A service on the cluster, which has begun."""
    service = Service(machine.folder / "web", *machine.place, "--name", "web", *options)
    try:
        service.start()
        yield service
    finally:
        service.close()


class Client:
    """Puts documents, and knows what has to be found."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.labels: dict[str, str] = {}

    def put(self, id: str) -> None:
        with httpx.Client(base_url=self.service.url, timeout=30.0) as http:
            told = http.put(f"/documents/{id}", json={"text": f"word {id}"})
            assert told.status_code == 200, told.text
            self.labels[id] = told.json()["label"]

    def check(self) -> None:
        """All that was acknowledged is found, and in the stream once."""
        with httpx.Client(base_url=self.service.url, timeout=30.0) as http:
            last = max(self.labels.values())
            found = http.get("/search", params={"q": "word", "after": last, "limit": 100}).json()
            assert {hit["id"]: hit["label"] for hit in found["hits"]} == self.labels
            with http.stream("GET", "/changes", params={"from": "0" * 14}) as stream:
                ids: list[str] = []
                for line in stream.iter_lines():
                    if line.startswith("id: ") and (label := line[4:]) not in ids:
                        ids.append(label)
                    if ids and ids[-1] >= last:
                        break
        assert ids == sorted(self.labels.values())


def test_nothing_is_lost_whatever_is_killed(tmp_path: Path) -> None:
    with Machine(tmp_path, ("master", "node")) as machine, served(machine) as service:
        client = Client(service)
        client.put("a")
        client.check()
        service.kill()
        service.start()
        client.put("b")
        client.check()
        for kind in ("node", "master"):
            machine.kill(kind)
            client.put(f"without-{kind}")
            machine.start(kind)
            client.put(f"with-{kind}")
            client.check()
        assert service.end() == 0
        service.start()
        client.check()
        print(service.log.read_text())
        print(machine.logs())
        print(machine.command("status"))
        print(machine.command("stop", "web"))
        assert service._process.wait(30) == 0
        print(machine.command("status"))
        print(machine.command("verify", "web"))
