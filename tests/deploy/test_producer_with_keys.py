"""Producers with keys: which sources and ids a key allows, and the errors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import create_server

import pytest
import zmq

from driftline.deploy.producer import Producer
from driftline.deploy.runtime.sockets.intake_socket import Keys
from driftline.deploy.runtime.sockets.keys import Authorised, add_keys, read_key
from driftline.deploy.runtime.sockets.monitor import HandshakeMonitor
from driftline.engine.errors import NotPermitted, Unavailable
from tests.connectors.logs.received_front import memory_disk
from tests.deploy.local.run_copies import free_port, kill, wait_until
from tests.deploy.roles.intake_host import HostThread, IntakeHost, stored

RIGHTS = {"shop": ["orders"], "till": ["payments"]}


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_disk() as folder:
        add_keys(folder / "keys", ["a", "b"], RIGHTS)
        yield folder


@pytest.fixture
def host(folder: Path) -> Iterator[IntakeHost]:
    """Provide a host that accepts records of the source `orders` from producers with a key."""
    keys = Keys(read_key(folder / "keys" / "a.key"), Authorised(folder / "keys"), "orders")
    host = IntakeHost(folder / "log", "tcp://127.0.0.1:*", keys=keys)
    with HostThread(host):
        yield host
    host.close()


def test_records_of_an_authorised_producer_are_stored_once(folder: Path, host: IntakeHost) -> None:
    records = [{"n": n, "text": "x" * (n * 400)} for n in range(200)]
    with Producer(host.intake.address, "shop-1", keys=folder / "keys/shop.key") as producer:
        for record in records:
            producer.send(record)
        producer.flush()
        assert producer.acknowledged == len(records)
    with Producer(host.intake.address, "shop-1", keys=folder / "keys/shop.key") as again:
        assert again.acknowledged == len(records)
    assert [record for _, _, record in stored(host.log)] == records


def test_right_to_one_source_does_not_cover_another(
    folder: Path, host: IntakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(NotPermitted, match="rejected the key till: is the key authorised there"):
        Producer(host.intake.address, "till", keys=folder / "keys/till.key")
    assert "the key till has no right for the source orders" in caplog.text
    with Producer(host.intake.address, "shop", keys=folder / "keys/shop.key") as producer:
        producer.send("mine")
    assert stored(host.log) == [("shop", 1, "mine")]


def send_as(host: IntakeHost, folder: Path, producer_id: str) -> None:
    with Producer(host.intake.address, producer_id, keys=folder / "keys/shop.key") as producer:
        producer.send("a record")


@pytest.mark.parametrize("foreign", ["till", "shopping", "shop_1"])
def test_key_allows_only_its_own_ids(
    folder: Path, host: IntakeHost, foreign: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Unavailable, match=r"the key shop permits only the ids shop and shop-"):
        send_as(host, folder, foreign)
    assert f"refused the id of a producer: '{foreign}' with the key shop" in caplog.text
    assert stored(host.log) == []


def test_producer_without_a_key_is_rejected(folder: Path, host: IntakeHost) -> None:
    endpoint = host.intake.address.partition("#")[0]
    with pytest.raises((NotPermitted, Unavailable), match=r"requires? a key.*keys="):
        Producer(endpoint, "shop", timeout_s=1.0)
    assert host.intake.malformed == 0


def test_key_is_rejected_by_a_host_without_keys(folder: Path) -> None:
    host = IntakeHost(folder / "log", "tcp://127.0.0.1:*")
    address = f"{host.intake.address}#{read_key(folder / 'keys/a.key').public}"
    # If the front closes the connection before its reason arrives, the error says so.
    words = "does not use keys|its handshakes fail"
    with HostThread(host), pytest.raises((NotPermitted, Unavailable), match=words):
        Producer(address, "shop", keys=folder / "keys/shop.key", timeout_s=5.0)
    host.close()


def test_host_with_a_wrong_public_key_is_rejected(folder: Path, host: IntakeHost) -> None:
    other = f"{host.intake.address.partition('#')[0]}#{read_key(folder / 'keys/b.key').public}"
    with pytest.raises(Unavailable, match="its handshakes fail: is your copy of the server's"):
        Producer(other, "shop", keys=folder / "keys/shop.key", timeout_s=1.0)


UNREAD = 2500
"""More monitor events than ZeroMQ queues by default."""


def test_unread_handshake_failures_do_not_block() -> None:
    """A program may do other work for hours while its socket keeps failing."""
    with (
        closing(create_server(("127.0.0.1", 0))) as server,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as dealer,
    ):
        server.settimeout(10)
        dealer.setsockopt(zmq.RECONNECT_IVL, 1)
        refusals = HandshakeMonitor(dealer, "tcp://somewhere")
        dealer.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        for _ in range(UNREAD):
            server.accept()[0].close()
        refusals.close()


def test_added_producer_can_send_at_once(folder: Path, host: IntakeHost) -> None:
    add_keys(folder / "keys", producers={"web": ["orders"]})
    with Producer(host.intake.address, "web", keys=folder / "keys/web.key") as producer:
        producer.send(1)
    assert stored(host.log) == [("web", 1, 1)]


BOTH = """
from driftline import Flow

flow = Flow("both")
flow.source("orders").map(lambda record: ("order", record)).sink("sold")
flow.source("payments").map(lambda record: ("payment", record)).sink("paid")
"""


def test_keys_restrict_each_source_of_a_run(tmp_path: Path) -> None:
    """End to end, at addresses that other machines can reach."""
    (tmp_path / "both.py").write_text(BOTH)
    keys = tmp_path / "keys"
    add_keys(keys, ["a"], RIGHTS)
    ports = {"orders": free_port(), "payments": free_port()}
    input_options = [
        word for name, port in ports.items() for word in ("--input", f"{name}=tcp://*:{port}")
    ]
    output = tmp_path / "out"
    command = ["run", str(tmp_path / "both.py"), *input_options, "--output", str(output), "--keys"]
    process = subprocess.Popen(
        [sys.executable, "-m", "driftline", *command, str(keys)],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        for name, source in (("shop", "orders"), ("till", "payments")):
            address = f"tcp://127.0.0.1:{ports[source]}"
            with Producer(address, name, keys=keys / f"{name}.key", timeout_s=60) as producer:
                for number in range(5):
                    producer.send([name, number])
        for name, source in (("shop", "payments"), ("till", "orders")):
            with pytest.raises(NotPermitted, match=f"rejected the key {name}"):
                Producer(f"tcp://127.0.0.1:{ports[source]}", name, keys=keys / f"{name}.key")
        wait_until(lambda: len(lines(output)) == 10, "outputs")
        process.send_signal(signal.SIGTERM)
        _, log_text = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            kill(process)
    assert process.returncode == 143, log_text
    assert "the key shop has no right for the source payments" in log_text
    assert sorted(lines(output)) == [
        [kind, [name, n]] for kind, name in (("order", "shop"), ("payment", "till"))
        for n in range(5)
    ]  # fmt: skip


def lines(output: Path) -> list[list[object]]:
    """Return the values of all outputs."""
    return [
        json.loads(line)["value"]
        for file in output.glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
