"""Lab of hosts in network namespaces, joined by a bridge; ZooKeeper listens at the bridge.

Each host runs real agents by their commands. A host can lose its link, lose the packets that it
sends to another host, be suspended, and be killed. Needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import pytest

from driftline.deploy.cluster.status import status_of
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.errors import Unavailable
from tests.zookeepers import SESSION_S, Ensemble, make_cluster

COMMAND = str(Path(sys.executable).with_name("driftline"))

LIMIT_S = 120.0
"""Upper bound on all waits."""

NO_OWNER = "02:00:00:00:00:99"
"""The address of a network card that does not exist."""


def ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True)


def free_network_number(first: int) -> int:
    """Return a free second octet for the lab's addresses.

    A killed lab leaves its addresses behind.
    """
    there = ip("-br", "address").stdout.decode() if shutil.which("ip") else ""
    numbers = (64 + (first + more) % 128 for more in range(128))
    return next(number for number in numbers if f" 10.{number}.0." not in there)


class Host:
    """Host of the lab: its namespace, its address and the processes started on it."""

    def __init__(self, lab: Lab, name: str, number: int) -> None:
        self.lab = lab
        self.name = name
        self.address = f"10.{lab.net}.0.{number + 2}"
        self.namespace = f"{lab.prefix}{name}"
        self._outside = f"{lab.prefix}{name}o"
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.folder = lab.folder / name

    def make(self) -> None:
        inside = f"{self._outside}i"
        ip("netns", "add", self.namespace)
        ip("link", "add", self._outside, "type", "veth", "peer", "name", inside)
        ip("link", "set", inside, "netns", self.namespace, "name", "eth0")
        ip("link", "set", self._outside, "master", self.lab.bridge, "up")
        ip("-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", self.namespace, "link", "set", "eth0", "up")
        ip("-n", self.namespace, "link", "set", "lo", "up")

    def remove(self) -> None:
        ip("netns", "del", self.namespace, check=False)
        ip("link", "del", self._outside, check=False)

    # Agents.

    def start(self, kind: str) -> None:
        """Start an agent with one role, named after the host and the role."""
        name, lab = f"{self.name}-{kind}", self.lab
        self.folder.mkdir(exist_ok=True)
        options = ["--zookeeper", lab.zookeeper, "--roles", kind, "--name", name]
        options += ["--state", str(self.folder / kind)]
        network = ["--bind", self.address, "--keys", lab.keys / f"{self.name}.key"]
        log = (self.folder / f"{kind}.log").open("ab")
        self.agents[kind] = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, COMMAND, "agent", *map(str, options + network)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
        )

    def kill(self) -> list[str]:
        """Kill all processes on this host with signal 9 and return the roles of its agents."""
        for pid in self.pids():
            with_pid(pid, signal.SIGKILL)
        for agent in self.agents.values():
            agent.wait()
        kinds = list(self.agents)
        self.agents.clear()
        return kinds

    def pids(self) -> list[int]:
        """Return the ids of all processes on this host."""
        return [int(pid) for pid in ip("netns", "pids", self.namespace).stdout.split()]

    def log(self, kind: str) -> str:
        """Return the log of an agent, including the lines of its processes."""
        return (self.folder / f"{kind}.log").read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to all processes on this host."""
        for pid in self.pids():
            with_pid(pid, number)

    # The network.

    def link(self, state: str) -> None:
        """Set the host's link `up` or `down`."""
        ip("link", "set", self._outside, state)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        self.link("down")
        yield
        self.link("up")

    @contextmanager
    def deaf_to(self, other: Host) -> Iterator[None]:
        """Drop packets from this host to another one; the other direction still works."""
        neighbour = "-n", self.namespace, "neigh"
        at = other.address, "dev", "eth0"
        ip(*neighbour, "replace", other.address, "lladdr", NO_OWNER, *at[1:], "nud", "permanent")
        yield
        ip(*neighbour, "del", *at)


def with_pid(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


class Lab:
    """Several hosts, and a ZooKeeper ensemble at the bridge between them."""

    def __init__(self, folder: Path, names: Sequence[str], producers: Iterable[str] = ()) -> None:
        """Create a lab in which each of `producers` has a key for the source of the same name."""
        self.folder = folder
        self.net = free_network_number(os.getpid())
        self.prefix = f"d{os.getpid() % 100_000}"
        self.bridge = f"{self.prefix}b"
        self.keys = folder / "keys"
        self._any_key = self.keys / f"{names[0]}.key"
        self.producers = list(producers)
        self.zookeeper = ""
        self.hosts = {name: Host(self, name, number) for number, name in enumerate(names)}

    @contextmanager
    def built(self, servers: int = 1) -> Iterator[Lab]:
        """Build the lab; tear it down at the end of the block."""
        if os.geteuid() != 0:
            pytest.skip("hosts are network namespaces: that takes root")
        with ExitStack() as stack:
            stack.callback(ip, "link", "del", self.bridge, check=False)
            bridge = ip("link", "add", self.bridge, "type", "bridge", check=False)
            if bridge.returncode:
                pytest.skip(f"this kernel makes no bridges: {bridge.stderr.decode()}")
            ip("addr", "add", f"10.{self.net}.0.1/24", "dev", self.bridge)
            ip("link", "set", self.bridge, "up")
            for host in self.hosts.values():
                stack.callback(host.remove)
                host.make()
            at = f"10.{self.net}.0.1"
            zookeeper = stack.enter_context(Ensemble(self.folder / "zk", servers, host=at))
            zookeeper.wait_until_ready()
            self.ensemble = zookeeper
            self.zookeeper = f"{zookeeper.addresses}/driftline"
            make_cluster(self.zookeeper)
            made = [COMMAND, "keys", str(self.keys), "--hosts", ",".join(self.hosts)]
            made += [word for name in self.producers for word in ("--producer", f"{name}={name}")]
            subprocess.run(made, check=True)
            stack.callback(self._end)
            yield self

    def _end(self) -> None:
        for host in self.hosts.values():
            host.signal(signal.SIGCONT)
            host.kill()

    def command(self, *arguments: object, host: str = "") -> str:
        """Run a cluster command on a host, check that it succeeds and return its output."""
        done = self.try_command(*arguments, host=host)
        output = f"{arguments[0]}: {done.stdout}{done.stderr}"
        assert done.returncode == 0, f"{output}\n{self.logs()}"
        return done.stdout

    def try_command(self, *arguments: object, host: str = "") -> subprocess.CompletedProcess[str]:
        """Run a cluster command on a host; it may fail, but not with a traceback."""
        chosen = self.hosts[host or next(iter(self.hosts))]
        name, *rest = map(str, arguments)
        where = ["--zookeeper", self.zookeeper]
        within = ["ip", "netns", "exec", chosen.namespace]
        done = subprocess.run(
            [*within, COMMAND, name, *rest, *where],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def status(self) -> dict[str, Any]:
        """Return the output of `driftline status --json`, once ZooKeeper is reachable.

        The query runs at the bridge, which faults of hosts do not affect.
        """
        network = TransportConfig("tcp", f"10.{self.net}.0.1", keys=str(self._any_key))
        give_up_at = monotonic() + LIMIT_S
        while True:
            try:
                with (
                    closing(ZooKeeperTree(self.zookeeper, SESSION_S)) as tree,
                    TemporaryDirectory() as sockets,
                ):
                    found = status_of(tree, Path(sockets), network)
            except Unavailable:
                if monotonic() > give_up_at:
                    raise
            else:
                return dict(json.loads(json.dumps(found.as_json())))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds."""
        give_up_at = monotonic() + LIMIT_S
        while not condition():
            assert monotonic() < give_up_at, f"not within {LIMIT_S} s: {what}\n{self.logs()}"
            sleep(0.1)

    def logs(self, *, all_lines: bool = False) -> str:
        """Return the logs of all agents; by default, only the last lines."""
        since = 0 if all_lines else -40
        return "\n".join(
            f"== {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[since:])
            for host in self.hosts.values()
            for log in sorted(host.folder.glob("*.log"))
        )
