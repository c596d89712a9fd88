"""The queue of masters, on a real ZooKeeper server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

from driftline.coordinator.leadership import Enlist, Leadership, LookAtQueue, LookBehind
from driftline.coordinator.zookeeper import Succession
from driftline.deploy.zookeeper.ensemble import Ensemble
from driftline.engine.errors import StateMismatch, Unavailable
from tests.zookeepers import WAIT_S, client_of, expire, wait_connected


class Master:
    """A master in the queue, with a session of its own."""

    def __init__(self, client: KazooClient, process: str, path: str) -> None:
        self.client = client
        self.process = process
        self.changed, self.expired = threading.Event(), threading.Event()
        self.succession = Succession(
            client,
            path,
            address=f"at {process}",
            changed=self.changed.set,
            expired=self.expired.set,
        )
        self.leadership = Leadership(process)

    def act(self) -> None:
        """Do everything that there is to do now."""
        while jobs := self.leadership.due(0.0):
            for job in jobs:
                self.leadership.done(job, self.succession.carry_out(job), 0.0)

    def notice(self) -> None:
        """Wait until something has changed, and look."""
        assert self.changed.wait(WAIT_S)
        self.changed.clear()
        self.leadership.noticed()
        self.act()


class Masters:
    """Masters of one queue, each test with a queue of its own."""

    def __init__(self, zookeeper: Ensemble, stack: ExitStack, path: str) -> None:
        self.zookeeper, self._stack, self.path = zookeeper, stack, path

    def __call__(self, process: str) -> Master:
        client = self._stack.enter_context(client_of(self.zookeeper))
        return Master(client, process, self.path)


@pytest.fixture
def masters(zookeeper: Ensemble, request: pytest.FixtureRequest) -> Iterator[Masters]:
    with ExitStack() as stack:
        yield Masters(zookeeper, stack, f"/queues/{request.node.name}")


def test_the_next_one_leads_when_the_first_ends(masters: Masters) -> None:
    first, second, third = masters("a"), masters("b"), masters("c")
    for master in (first, second, third):
        master.act()
    assert [m.leadership.before for m in (first, second, third)] == ["", "a", "b"]
    assert third.succession.leader() == ("a", "at a")
    third.changed.clear()
    first.client.stop()
    second.notice()
    assert second.leadership.first
    third.notice()  # it looks who leads; its place has not changed
    assert third.leadership.before == "b"
    assert third.succession.leader() == ("b", "at b")


def test_a_process_whose_end_is_known_is_not_waited_for(masters: Masters) -> None:
    first, second, parent = masters("a"), masters("b"), masters("parent")
    first.act()
    second.act()
    parent.succession.forget("a")  # its session goes on
    second.notice()
    assert second.leadership.first
    assert parent.succession.leader() == ("b", "at b")


def test_a_leader_finds_out_who_is_behind_it(masters: Masters) -> None:
    first, second, third = masters("a"), masters("b"), masters("c")
    first.act()
    assert first.succession.carry_out(LookBehind("a")) == ""
    second.act()
    third.act()
    assert first.succession.carry_out(LookBehind("a")) == "b"
    assert third.succession.carry_out(LookBehind("c")) == ""
    second.succession.forget("a")
    second.notice()
    with pytest.raises(StateMismatch, match="not among the masters"):
        first.succession.carry_out(LookBehind("a"))


def test_one_that_goes_from_the_middle_makes_nobody_lead(masters: Masters) -> None:
    first, second, third = masters("a"), masters("b"), masters("c")
    for master in (first, second, third):
        master.act()
    second.client.stop()
    third.notice()
    assert third.leadership.before == "a"
    assert not third.leadership.first
    assert first.leadership.first


def test_a_session_that_expires_loses_its_place_and_says_so(masters: Masters) -> None:
    first, second = masters("a"), masters("b")
    first.act()
    second.act()
    expire(first.client)
    assert first.expired.wait(WAIT_S)
    first.leadership.expired()
    assert not first.leadership.first
    second.notice()
    assert second.leadership.first


def test_who_has_lost_its_place_finds_out_when_it_looks(masters: Masters) -> None:
    first, second = masters("a"), masters("b")
    first.act()
    second.act()
    second.changed.clear()
    expire(second.client)
    assert second.expired.wait(WAIT_S)
    wait_connected(second.client)
    with pytest.raises(StateMismatch, match="not among the masters"):
        second.succession.carry_out(LookAtQueue("b"))


def test_a_process_queues_up_once_however_often_it_tries(masters: Masters) -> None:
    master = masters("a")
    for _ in range(3):
        master.succession.carry_out(Enlist("a"))
    assert master.succession.carry_out(LookAtQueue("a")) == ""
    assert masters("b").succession.leader() == ("a", "at a")
    assert len(master.client.get_children(master.succession._path)) == 1


def test_a_server_that_is_away_for_a_moment_changes_no_place(masters: Masters) -> None:
    first, second = masters("a"), masters("b")
    first.act()
    second.act()
    [server] = masters.zookeeper.servers
    server.kill()
    with pytest.raises(Unavailable):
        second.succession.carry_out(LookAtQueue("b"))
    server.start()
    masters.zookeeper.wait_until_ready()
    for master in (first, second):
        wait_connected(master.client)
    second.notice()
    assert second.leadership.before in ("a", "")  # "": the session of the first was too short
    assert first.leadership.first


def test_nobody_leads_an_empty_queue(masters: Masters) -> None:
    master = masters("a")
    assert master.succession.leader() == ("", "")
    master.act()
    assert master.changed.wait(WAIT_S), "a watch of whoever looked"


def test_z_nodes_of_strangers_are_no_masters(masters: Masters) -> None:
    first = masters("first")
    for name in ("garbage", "a-1", "-0000000000", "x0000000000"):
        first.client.create(f"{masters.path}/{name}", b"\xff", makepath=True)
    first.act()
    assert first.leadership.first
    assert first.succession.leader() == ("first", "at first")
