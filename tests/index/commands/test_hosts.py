"""Service on one host, master and node on another one: no write is lost if links or hosts fail.

pytest -m soak -n 0 tests/index/commands/test_hosts.py
"""

from __future__ import annotations

import signal
import subprocess
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest

from tests.deploy.cluster.lab import COMMAND, LIMIT_S, Host, Lab

LONGER_THAN_A_SESSION_S = 6.0

ACCESS = {"Authorization": "Bearer t"}


class RemoteService:
    """`driftline serve` on a host, with the labels that it has acknowledged."""

    def __init__(self, lab: Lab, host: Host) -> None:
        self.labels: dict[str, str] = {}
        self._lab = lab
        self._host = host
        self._url = f"http://{host.address}:8080"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the service and wait until it is ready."""
        lab, host, folder = self._lab, self._host, self._host.folder
        folder.mkdir(exist_ok=True)
        tokens = folder / "tokens"
        tokens.write_text(f"write {sha256(b't').hexdigest()} me\n")
        options = {
            "--zookeeper": lab.zookeeper, "--bind": host.address, "--name": "web",
            "--keys": lab.keys / f"{host.name}.key", "--journal-key": lab.keys / "journal.key",
            "--state": folder / "serve", "--http": f"{host.address}:8080", "--tokens": tokens,
        }  # fmt: skip
        words = [str(word) for option in options.items() for word in option]
        with (folder / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", host.namespace, COMMAND, "serve", *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("ready"), lab.logs()

    def terminate(self) -> int:
        """Shut the service down with SIGTERM and return its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(LIMIT_S)

    def put(self, id: str) -> None:
        response = httpx.put(
            f"{self._url}/documents/{id}", json={"text": "word"}, headers=ACCESS, timeout=30.0
        )
        assert response.status_code == 200, response.text
        self.labels[id] = response.json()["label"]

    def check(self) -> None:
        """Check that a search returns all acknowledged writes, once a node is running."""
        parameters = {"q": "word", "after": max(self.labels.values()), "limit": "100"}
        give_up_at = monotonic() + LIMIT_S
        while True:
            response = httpx.get(
                f"{self._url}/search", params=parameters, headers=ACCESS, timeout=30.0
            )
            if response.status_code == 200:
                break
            assert monotonic() < give_up_at, f"{response.text}\n{self._lab.logs()}"
        assert {hit["id"]: hit["label"] for hit in response.json()["hits"]} == self.labels


@pytest.mark.soak
def test_service_loses_no_write_between_two_hosts(tmp_path: Path) -> None:
    with Lab(tmp_path, ["a", "b"]).built() as lab:
        make_keys = COMMAND, "keys", str(lab.keys), "--consumer", "journal=*"
        subprocess.run(make_keys, check=True)
        service_host, node_host = lab.hosts["a"], lab.hosts["b"]
        for kind in ("master", "node"):
            node_host.start(kind)
        lab.until(lambda: len(lab.status()["agents"]) == 2, "all agents")
        service = RemoteService(lab, service_host)
        service.start()
        service.put("first")
        service.check()
        with service_host.cut_off():
            sleep(LONGER_THAN_A_SESSION_S)
        service.put("after a cut link")
        service.check()
        for kind in node_host.kill():
            node_host.start(kind)
        service.put("after the death of the other host")
        service.check()
        service_host.signal(signal.SIGKILL)
        service.start()
        with node_host.deaf_to(service_host):
            service.put("while outputs are lost")
            sleep(LONGER_THAN_A_SESSION_S)
        service.check()
        assert service.terminate() == 0
        assert lab.status()["flows"][0]["state"] == "drained on request"
