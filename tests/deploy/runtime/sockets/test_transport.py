"""Roles on several hosts: what a key allows them to send and receive, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copy, copytree
from unittest.mock import patch

import pytest

from driftline.deploy.runtime.loop import runtime as module
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.sockets.keys import Authorised, Rights, add_keys, make_keys, read_key
from driftline.deploy.runtime.sockets.transport import Transport, TransportConfig
from driftline.engine.errors import NotPermitted, PayloadError, Unavailable
from driftline.engine.wire.addresses import Address, parse
from driftline.engine.wire.messages import Alive, Bundle, BundleStored, Progress, Stop
from tests.deploy.runtime.keyed import Hosts
from tests.deploy.runtime.loop.test_runtime import RecordingRole

STOP = Stop("run", "", "")
ALIVE = Alive("process", 1, 0)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with Hosts(tmp_path) as hosts:
        yield hosts


def test_members_with_keys_receive_each_others_messages_in_order(hosts: Hosts) -> None:
    (master, here), (node, there) = hosts.start("one", "master"), hosts.start("two", "node-1")
    master.addresses["node-1"], node.addresses["master"] = there, here
    for number in range(100):
        master.send("node-1", Progress(number, number))
        node.send("master", ALIVE)
    hosts.until(lambda: len(node.received) == len(master.received) == 100)
    assert node.received == [("master", Progress(number, number)) for number in range(100)]
    assert master.received == [("node-1", ALIVE)] * 100
    assert parse(here).public_key == read_key(hosts.keys / "one.key").public


def node_after_forged_messages(hosts: Hosts) -> RecordingRole:
    """Return a node after messages of a member in the master's name, then in its own."""
    node, address = hosts.start("one", "node-0")
    socket = hosts.speak(
        address, "two", [("master", STOP)] * 3 + [("node-1", BundleStored("", 0, 0))]
    )
    hosts.until(lambda: node.malformed + len(node.received) == 4)
    socket.close()
    return node


def test_member_cannot_send_as_another(hosts: Hosts, caplog: pytest.LogCaptureFixture) -> None:
    node = node_after_forged_messages(hosts)
    assert (node.received, node.malformed) == ([], 4)
    [line] = [text for text in caplog.messages if "dropped" in text]
    assert "the key two does not speak for 'master'" in line


def test_role_may_send_only_its_own_message_types(hosts: Hosts) -> None:
    node, address = hosts.start("one", "node-0")
    stored = BundleStored("barrier-0", 0, 7)
    socket = hosts.speak(address, "board", [("consumer", STOP), ("consumer", stored)])
    hosts.until(lambda: bool(node.received))
    socket.close()
    assert (node.received, node.malformed) == ([("consumer", stored)], 1)


def test_message_is_not_sent_to_a_key_of_another_receiver(
    hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    """A member may claim that another member is at its own address."""
    (master, _), (thief, there) = hosts.start("one", "master"), hosts.start("board", "consumer")
    master.addresses["node-1"] = master.addresses["consumer"] = there
    master.send("node-1", STOP)
    master.send("consumer", ALIVE)
    hosts.until(lambda: bool(thief.malformed))
    assert (thief.received, master.malformed, thief.malformed) == ([], 1, 1)
    assert "the key board is not for node-1" in caplog.text


def test_consumer_gets_only_bundles_whose_sinks_its_key_allows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = Bundle("barrier-0", 1, (0, 1), (), 7, 0)
    for number, sinks in enumerate((("totals",), ("totals", "secrets"))):
        with Hosts(tmp_path / str(number)) as hosts:
            node, _ = hosts.start("one", "node-0", sinks=sinks)
            board, node.addresses["consumer"] = hosts.start("board", "consumer")
            node.send("consumer", bundle)
            hosts.until(lambda node=node, board=board: bool(node.malformed or board.received))  # type: ignore[misc]
            assert board.received == ([] if "secrets" in sinks else [("node-0", bundle)])
    assert "the key board has no right to all of totals, secrets" in caplog.text


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp://127.0.0.1:1", "without a key"),
        ("ipc:///tmp/somewhere", "without a key"),
        (str(Address("tcp://127.0.0.1:1", "x" * 40)), "with a key that is not authorised"),
        ("nonsense", "it is not tcp://HOST:PORT"),
        ("tcp://127.0.0.1:1#short", "the text after # is not a public key"),
    ],
)
def test_invalid_address_is_counted_and_logged(
    hosts: Hosts, address: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    node, _ = hosts.start("one", "node-0")
    node.addresses["master"] = address
    node.send("master", ALIVE)
    hosts.until(lambda: bool(node.malformed))
    assert why in caplog.text


def test_rejected_connection_is_retried_until_its_key_is_authorised(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "REOPEN_AFTER_S", 0.05)
    here = copytree(hosts.keys, hosts.folder / "elsewhere")
    make_keys(hosts.keys, [("late", Rights(("node-2",)))])
    node, address = hosts.start("one", "node-0", authorised=Authorised(here))
    late, _ = hosts.start("late", "node-2")
    late.addresses["node-0"] = address

    def tried(until: Callable[[], bool]) -> bool:
        late.send("node-0", ALIVE)
        return until()

    hosts.until(lambda: tried(lambda: late.malformed > 1))
    assert node.received == []
    assert "node-0 at tcp://" in caplog.text
    assert "rejected the key of this process" in caplog.text
    copy(hosts.keys / "authorised", here / "authorised")
    hosts.until(lambda: tried(lambda: bool(node.received)))


def test_role_restarted_at_its_address_is_reachable_again(hosts: Hosts) -> None:
    node, _ = hosts.start("two", "node-1")
    master, address = hosts.start("one", "master")
    node.addresses["master"] = address
    node.send("master", ALIVE)
    hosts.until(lambda: bool(master.received))
    hosts.runtimes.pop().close(linger_ms=0)
    endpoint = parse(address).endpoint
    again, same = hosts.start("one", "master", at=endpoint)
    assert same == address

    def received() -> bool:
        node.send("master", ALIVE)
        return bool(again.received)

    hosts.until(received)


def test_oversized_message_raises_at_the_sender(hosts: Hosts) -> None:
    (node, _), (_, there) = hosts.start("one", "node-0"), hosts.start("two", "node-1")
    node.addresses["node-1"] = there
    node.send("node-1", Bundle("b", 1, (0, 1), (bytes(2000),), 7, 0))
    with (
        patch.object(module, "MESSAGE_BYTES_MAX", 1000),
        pytest.raises(PayloadError, match=r"has 20\d\d bytes; the limit between hosts is 1000"),
    ):
        hosts.runtimes[0].flush(node)
    node.outbox.clear()


@pytest.mark.parametrize("address", ["tcp://*:*", "tcp://0.0.0.0:*", "tcp://10.1.2.3:5555"])
def test_listening_beyond_this_machine_requires_keys(address: str) -> None:
    runtime = Runtime(transport=Transport("tcp"))
    with pytest.raises(NotPermitted, match="without keys: other machines can connect"):
        runtime.add(RecordingRole("node-0"), address)
    runtime.close(linger_ms=0)


def test_nothing_is_sent_beyond_this_machine_without_keys(caplog: pytest.LogCaptureFixture) -> None:
    runtime, node = Runtime(), RecordingRole("node-0")
    runtime.add(node, "inproc://node-0")
    node.addresses["master"] = "tcp://10.1.2.3:5555"
    node.send("master", ALIVE)
    runtime.flush(node)
    assert node.malformed == 1
    assert "master is at tcp://10.1.2.3:5555, and this process has no keys" in caplog.text
    runtime.close(linger_ms=0)


def test_key_is_rejected_for_a_role_that_it_does_not_cover(hosts: Hosts) -> None:
    with pytest.raises(NotPermitted, match="the key two does not speak for master"):
        hosts.start("two", "master")


@pytest.mark.parametrize(
    ("advertise", "expected"), [("h.example", "h.example:7"), ("h:9", "h:9"), ("[::1]", "[::1]:7")]
)
def test_advertised_address_replaces_the_bound_address(advertise: str, expected: str) -> None:
    assert (
        Transport("tcp", advertise=advertise).resolve_advertised("tcp://0.0.0.0:7")
        == f"tcp://{expected}"
    )


def test_wildcard_address_requires_an_advertised_address() -> None:
    with pytest.raises(Unavailable, match="name the one that others connect to"):
        Transport("tcp").resolve_advertised("tcp://0.0.0.0:7")


def test_transport_config_locates_keys_and_known_addresses(tmp_path: Path) -> None:
    [key] = add_keys(tmp_path / "keys", ["a"])
    known = (("master", str(Address("tcp://h:7", key.public))),)
    network = TransportConfig("tcp", "10.0.0.5", keys=str(tmp_path / "keys"), known=known)
    assert key.secret not in repr(network)
    assert network.transport().own == key
    assert network.address("master", "") == known[0][1]
    assert network.inbox("master", "") == "tcp://10.0.0.5:7"
    assert network.inbox("node-0", "") == "tcp://10.0.0.5:*"
    local = TransportConfig(known=(("consumer", "ipc:///elsewhere"),))
    assert local.address("consumer", "/here") == "ipc:///elsewhere"
    assert local.inbox("consumer", "/here") == "ipc:///elsewhere"
    assert local.address("master", "/here") == "ipc:///here/master"
