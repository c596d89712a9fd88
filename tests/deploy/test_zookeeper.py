"""Development server of ZooKeeper: real processes that keep their data."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from driftline.coordinator.registry import ClusterState
from driftline.coordinator.zookeeper import ZooKeeperRegistry, close, connect
from driftline.deploy import zookeeper as module
from driftline.deploy.zookeeper import LOOPBACK, ZooKeeperServer
from driftline.engine.errors import InUse, Unavailable
from tests.zookeepers import SESSION_S, WAIT_S, needs_zookeeper

ROOT = Path(__file__).resolve().parents[3]

FIRST = ClusterState("me").next(incarnation=1)


@dataclass
class ZooKeeperCommand:
    """Running `driftline zookeeper` command."""

    process: subprocess.Popen[str]
    connect: str
    pid: int

    def wait_for_exit(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and standard error."""
        _, error_text = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, error_text


@contextmanager
def run_zookeeper(data: Path) -> Iterator[ZooKeeperCommand]:
    """Start the command, and yield it once the server answers."""
    needs_zookeeper()
    words = "driftline", "zookeeper", "--data", str(data), "--port", "0", "--json"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", *words], cwd=ROOT, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            assert process.stdout is not None
            report = json.loads(process.stdout.readline())
            yield ZooKeeperCommand(process, report["connect"], report["pid"])
        finally:
            process.kill()


@contextmanager
def closing_client(addresses: str) -> Iterator[KazooClient]:
    """Provide a client with its own session."""
    client = connect(addresses, SESSION_S)
    try:
        yield client
    finally:
        close(client)


def test_command_serves_and_keeps_its_data_until_a_signal(tmp_path: Path) -> None:
    """Its directory may have any name. If the server process dies, the command exits."""
    data = tmp_path / "a b=\\ü"
    with run_zookeeper(data) as served:
        with closing_client(served.connect) as client:
            ZooKeeperRegistry(client, "/registry").write(FIRST)
        os.kill(served.pid, signal.SIGKILL)
        status, error_text = served.wait_for_exit()
    assert status == 1
    assert "ZooKeeper has ended:\n  ended by SIGKILL" in error_text
    assert f"its log is {data}/zookeeper.log" in error_text
    with run_zookeeper(data) as served:
        with closing_client(served.connect) as client:
            assert ZooKeeperRegistry(client, "/registry").read() == FIRST
        with pytest.raises(InUse, match="is in use by another ZooKeeper server"):
            ZooKeeperServer(data).__enter__()
        server = os.pidfd_open(served.pid)
        served.process.terminate()
        status, error_text = served.wait_for_exit()
        assert select.select([server], [], [], WAIT_S)[0], "the server is still running"
        os.close(server)
    assert status == 128 + signal.SIGTERM
    assert "ended by SIGTERM" in error_text


def test_damaged_data_is_reported(tmp_path: Path) -> None:
    needs_zookeeper()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "version-2").write_text("no directory")
    with (
        ZooKeeperServer(tmp_path) as server,
        pytest.raises(Unavailable, match=r"(?s)ZooKeeper has ended:.*status 1\n") as raised,
    ):
        server.wait_until_ready()
    assert "FileNotFoundException: ./data/version-2/" in str(raised.value)


def test_unusable_address_is_named(tmp_path: Path) -> None:
    needs_zookeeper()
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"port {port} of 127.0.0.1 is in use"):
            ZooKeeperServer(tmp_path, port=port).__enter__()
    for host in ("192.0.2.1", "no-such-host"):
        with pytest.raises(Unavailable, match=host):
            ZooKeeperServer(tmp_path, host=host).__enter__()


def test_missing_software_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "zk"
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(Unavailable, match="ZooKeeper needs Java 17 or newer"):
            ZooKeeperServer(data).__enter__()
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'driftline\[spark\]'"):
        ZooKeeperServer(data).__enter__()
    assert not data.exists()
