"""Real ZooKeeper servers: they serve, outlive each other, and never their parent."""

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

from driftline.coordinator.registry import ClusterState
from driftline.coordinator.zookeeper import ZooKeeperRegistry
from driftline.deploy import zookeeper as server
from driftline.deploy.zookeeper import LOOPBACK, Ensemble
from driftline.engine.errors import InUse, Unavailable
from tests.zookeepers import WAIT_S, client_of, needs_zookeeper, wait_connected

ROOT = Path(__file__).resolve().parents[3]

FIRST = ClusterState("me").next(incarnation=1)


@dataclass
class Running:
    """A command that serves."""

    process: subprocess.Popen[str]
    connect: str
    pids: list[int]

    def ended(self) -> tuple[int, str]:
        """Its exit status, and what it has said to standard error. Waits."""
        _, said = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, said


def command(data: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "driftline", "zookeeper", "--data", str(data), *options]


def refused(*words: str, **environment: str) -> tuple[int, str]:
    """The exit status of a command that does not serve, and what it says."""
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr


@contextmanager
def running(data: Path, *options: str) -> Iterator[Running]:
    """The command, once it serves."""
    needs_zookeeper()
    words = command(data, "--port", "0", "--json", *options)
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield Running(process, told["connect"], [told["pid"]])
        finally:
            process.kill()


def wait_for_the_end_of(pids: list[int]) -> None:
    """Wait until processes have ended that are not ours. Fails if they do not."""
    for pid in pids:
        try:
            file = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([file], [], [], WAIT_S)[0], f"process {pid} lives on"
        os.close(file)


# The command ----------------------------------------------------------------------------------


def test_the_command_serves_until_a_signal(tmp_path: Path) -> None:
    with running(tmp_path / "zk") as served:
        host, _, port = served.connect.rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"ruok")
            assert connection.recv(9) == b"imok"
        served.process.terminate()
        status, said = served.ended()
    assert status == 128 + signal.SIGTERM
    assert "ended by SIGTERM" in said
    wait_for_the_end_of(served.pids)


def test_the_servers_do_not_outlive_a_command_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path / "zk") as served:
        served.process.kill()
        served.ended()
        wait_for_the_end_of(served.pids)


def test_a_server_that_dies_ends_the_command_with_an_error(tmp_path: Path) -> None:
    with running(tmp_path / "zk") as served:
        os.kill(served.pids[0], signal.SIGKILL)
        status, said = served.ended()
    assert status == 1
    assert "ZooKeeper server 1 has ended:\n  ended by SIGKILL" in said
    assert f"its log is {tmp_path}/zk/server-1/zookeeper.log" in said


def test_a_port_that_is_in_use_is_told_as_such(tmp_path: Path) -> None:
    needs_zookeeper()
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = str(taken.getsockname()[1])
        status, said = refused(*command(tmp_path / "zk", "--port", port))
    assert status == 1
    assert f"port {port} of 127.0.0.1 is in use" in said


def test_without_java_the_command_says_what_to_install(tmp_path: Path) -> None:
    status, said = refused(*command(tmp_path / "zk"), JAVA_HOME=str(tmp_path))
    assert status == 1
    assert "ZooKeeper needs Java 17 or newer (for example the package openjdk-17" in said
    assert not (tmp_path / "zk").exists()


# Servers --------------------------------------------------------------------------------------


def test_without_pyspark_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'driftline\[spark\]'"), Ensemble(tmp_path):
        pass


def test_a_host_that_is_not_this_one_is_told_as_such(tmp_path: Path) -> None:
    needs_zookeeper()
    for host in ("192.0.2.1", "no-such-host"):
        with pytest.raises(Unavailable, match=host), Ensemble(tmp_path, host=host):
            pass


def test_an_ensemble_goes_on_without_its_leader(tmp_path: Path) -> None:
    needs_zookeeper()
    directory = tmp_path / "a b=\\ü"
    with Ensemble(directory, 3) as ensemble:
        ensemble.wait_until_ready()
        leader = ensemble.leader()
        with client_of(ensemble) as client:
            registry = ZooKeeperRegistry(client, "/registry")
            registry.write(FIRST)
            leader.kill()
            successor = ensemble.leader()
            assert successor is not leader
            wait_connected(client)
            registry.write(FIRST.next())
            leader.start()
            ensemble.wait_until_ready()
            assert leader.mode() == "follower"
            successor.stop()
            assert ensemble.leader() is not successor
            wait_connected(client)
            assert registry.read() == FIRST.next()


def test_data_directory_persists_is_locked_and_damage_is_reported(tmp_path: Path) -> None:
    needs_zookeeper()
    with Ensemble(tmp_path) as ensemble:
        ensemble.wait_until_ready()
        with client_of(ensemble) as client:
            ZooKeeperRegistry(client, "/registry").write(FIRST)
        with pytest.raises(InUse, match="is in use by other ZooKeeper servers"):
            Ensemble(tmp_path).__enter__()
    with Ensemble(tmp_path) as ensemble:
        ensemble.wait_until_ready()
        with client_of(ensemble) as client:
            assert ZooKeeperRegistry(client, "/registry").read() == FIRST
        ensemble.servers[0].stop()
        data = tmp_path / "server-1" / "data" / "version-2"
        for file in data.iterdir():
            file.unlink()
        data.rmdir()
        data.write_text("no directory")
        ensemble.servers[0].start()
        with pytest.raises(Unavailable, match=r"(?s)server 1 has ended:.*status 1\n") as raised:
            ensemble.wait_until_ready()
    assert "FileNotFoundException: ./data/version-2/" in str(raised.value)
