"""Recovery step by step; a decision is sent only when it is written; a snapshot is whole or not."""

from __future__ import annotations

import pytest

from driftline.coordinator.coordinator import MISSING_AFTER_S, Coordinator, Phase
from driftline.coordinator.registry import ClusterState, SnapshotRecord, WriteState
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.labels import INFINITY
from driftline.engine.policy import policy
from driftline.engine.wire.messages import (
    BeginEpoch,
    Committed,
    Failed,
    Hello,
    Lost,
    Message,
    Prepare,
    Prepared,
    PrepareFailed,
    Recover,
    Start,
    Stop,
    Unloadable,
)

INTERVAL = 2.0


class Cluster:
    """A coordinator, its registry, and nodes and fronts that say what a test lets them say."""

    def __init__(
        self,
        nodes: int = 2,
        fronts: int = 1,
        mode: str = "exactly-once",
        state: ClusterState | None = None,
    ) -> None:
        self.written = state or ClusterState("me")
        self.coordinator = Coordinator(nodes, fronts, policy(mode), self.written, INTERVAL)
        self.nodes = [f"node-{i}" for i in range(nodes)]
        self.fronts = [f"front-{i}" for i in range(fronts)]
        self.processes = {name: f"{name}#1" for name in self.nodes + self.fronts}
        self.now = 0.0

    def phase(self) -> Phase:
        return self.coordinator.phase

    def hello(self, *names: str, ready: bool = False, incarnation: int | None = None) -> None:
        for name in names:
            known = self.coordinator.state.incarnation if incarnation is None else incarnation
            self.coordinator.hello(
                name, Hello(f"at {name}", self.processes[name], known, int(ready))
            )

    def write(self) -> list[ClusterState]:
        """Let the registry do what it was asked for."""
        jobs, self.coordinator.jobs = self.coordinator.jobs, []
        found = []
        for job in jobs:
            assert isinstance(job, WriteState)
            result: object = None
            if job.state.version == self.written.version + 1:
                self.written = job.state
                found.append(job.state)
            else:
                result = StateMismatch("another master has taken over")
            self.coordinator.done(job, result)
        return found

    def sent(self) -> list[tuple[str, Message]]:
        """What was sent since the last look."""
        out, self.coordinator.out = self.coordinator.out, []
        return out

    def pass_time(self, seconds: float, silent: tuple[str, ...] = ()) -> None:
        """Everybody but the silent ones says hello all the time."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 0.5)
            self.hello(*[name for name in self.processes if name not in silent])
            self.coordinator.tick(self.now)

    def run(self) -> Cluster:
        """Get to where everything runs."""
        self.hello(*self.processes, incarnation=0)
        self.write()
        self.hello(*self.nodes, ready=True)
        assert self.phase() is Phase.RUNNING
        self.sent()
        return self

    def snapshot(self, number: int, time: int) -> None:
        """Take a snapshot from beginning to end."""
        self.pass_time(INTERVAL + 0.1)
        self.coordinator.consider_snapshot(time)
        for node in self.nodes:
            self.coordinator.prepared(node, Prepared(number, 0))
        self.write()
        self.sent()


def restart(cluster: Cluster, name: str) -> None:
    cluster.processes[name] += "'"
    cluster.hello(name, incarnation=0)


# Recovery -------------------------------------------------------------------------------------


def test_the_steps_of_a_start_come_in_order() -> None:
    cluster = Cluster()
    *others, last = cluster.processes
    cluster.hello(*others, incarnation=0)
    assert (cluster.coordinator.jobs, cluster.sent()) == ([], [])  # somebody is missing
    cluster.hello(last, incarnation=0)
    assert cluster.sent() == []  # the decision is not written yet
    assert cluster.write() == [ClusterState("me", 1, 1)]
    addresses = tuple((name, f"at {name}") for name in sorted(cluster.processes))
    assert cluster.sent() == [(node, Recover(1, 0, 0, 0, addresses)) for node in cluster.nodes]
    cluster.hello("node-0", ready=True)
    assert cluster.sent() == []  # one of them is not ready
    cluster.hello("node-1", ready=False)
    cluster.hello("node-0", ready=True)
    assert cluster.sent() == []
    cluster.hello("node-1", ready=True)
    assert cluster.sent() == [("front-0", Start(1, 0, addresses))]
    assert cluster.phase() is Phase.RUNNING
    assert cluster.coordinator.recoveries == 0


def test_a_recovery_begins_from_the_last_committed_snapshot() -> None:
    records = SnapshotRecord(7, 40, (40, 44)), SnapshotRecord(6, 30, (30, 30))
    cluster = Cluster(fronts=2, state=ClusterState("me", 9, 3, records))
    cluster.hello(*cluster.processes, incarnation=0)
    assert cluster.write()[0].incarnation == 4
    for _, message in cluster.sent():
        assert isinstance(message, Recover)
        assert (message.incarnation, message.number, message.time) == (4, 7, 40)
    cluster.hello(*cluster.nodes, ready=True)
    starts = [message for _, message in cluster.sent() if isinstance(message, Start)]
    assert [(message.incarnation, message.offset) for message in starts] == [(4, 40), (4, 44)]


def test_without_replay_fronts_go_on_where_they_are() -> None:
    cluster = Cluster(mode="none")
    cluster.hello(*cluster.processes, incarnation=0)
    cluster.write()
    cluster.sent()
    cluster.hello(*cluster.nodes, ready=True)
    [(_, message)] = cluster.sent()
    assert isinstance(message, Start)
    assert message.offset == -1


def test_a_ready_of_an_earlier_incarnation_does_not_count() -> None:
    cluster = Cluster().run()
    cluster.coordinator.lost(Lost(1, "a frame"))
    cluster.write()
    cluster.sent()
    cluster.hello(*cluster.nodes, ready=True, incarnation=1)
    assert cluster.phase() is Phase.LOADING
    assert {type(message) for _, message in cluster.sent()} == {Recover}
    cluster.hello(*cluster.nodes, ready=True)
    assert cluster.phase() is Phase.RUNNING


def test_whoever_missed_where_the_run_stands_is_told_again() -> None:
    cluster = Cluster().run()
    cluster.hello("front-0", "node-1", incarnation=0)
    found = cluster.sent()
    assert [(name, type(message)) for name, message in found] == [
        ("front-0", Start),
        ("node-1", Recover),
    ]
    cluster.hello("front-0", "node-1")
    assert cluster.sent() == []


def test_a_loss_begins_a_new_incarnation_once() -> None:
    cluster = Cluster().run()
    for _ in range(3):
        cluster.coordinator.lost(Lost(1, "node-1 misses messages of node-0"))
    assert [state.incarnation for state in cluster.write()] == [2]
    cluster.coordinator.lost(Lost(1, "told again"))
    assert cluster.write() == []
    assert cluster.coordinator.recoveries == 1
    assert {name for name, message in cluster.sent() if isinstance(message, Recover)} == {
        "node-0",
        "node-1",
    }


@pytest.mark.parametrize("name", ["node-1", "front-0"])
def test_silence_begins_a_recovery_when_the_silent_one_is_back(name: str) -> None:
    cluster = Cluster().run()
    cluster.pass_time(MISSING_AFTER_S, silent=(name,))
    assert cluster.phase() is Phase.RUNNING
    cluster.pass_time(1.0, silent=(name,))
    assert cluster.phase() is Phase.GATHERING
    assert cluster.coordinator.recoveries == 1
    assert cluster.write() == []
    cluster.hello(name)
    assert [state.incarnation for state in cluster.write()] == [2]


@pytest.mark.parametrize("name", ["node-1", "front-0"])
def test_a_restarted_process_begins_a_recovery_at_once(name: str) -> None:
    cluster = Cluster().run()
    restart(cluster, name)
    assert [state.incarnation for state in cluster.write()] == [2]
    assert cluster.coordinator.recoveries == 1
    addresses = [message.addresses for _, message in cluster.sent() if isinstance(message, Recover)]
    assert (name, f"at {name}") in addresses[0]


def test_a_node_that_restarts_while_it_loads_begins_a_recovery() -> None:
    cluster = Cluster()
    cluster.hello(*cluster.processes, incarnation=0)
    cluster.write()
    cluster.hello("node-0", ready=True)
    restart(cluster, "node-0")
    cluster.hello("node-1", ready=True)
    assert cluster.phase() is not Phase.RUNNING
    assert [state.incarnation for state in cluster.write()] == [2]
    cluster.hello("node-1", ready=True)
    assert cluster.phase() is Phase.LOADING
    cluster.hello("node-0", ready=True)
    assert cluster.phase() is Phase.RUNNING


def test_a_second_restart_while_the_first_is_being_decided_needs_no_new_master() -> None:
    cluster = Cluster().run()
    restart(cluster, "node-0")
    restart(cluster, "node-1")
    cluster.write()
    cluster.write()
    assert cluster.phase() is Phase.LOADING


def test_a_restart_while_a_snapshot_is_being_committed_needs_no_new_master() -> None:
    cluster = Cluster().run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    for node in cluster.nodes:
        cluster.coordinator.prepared(node, Prepared(1, 0))
    restart(cluster, "node-0")
    cluster.write()
    cluster.write()
    assert cluster.phase() is Phase.LOADING


def test_incarnations_only_grow_and_every_decision_is_written_before_it_is_sent() -> None:
    cluster = Cluster().run()
    last = 1
    for name in ("node-0", "front-0", "node-1", "node-1"):
        restart(cluster, name)
        assert cluster.sent() == []
        [state] = cluster.write()
        assert state.incarnation == last + 1
        last = state.incarnation
        told = [message for _, message in cluster.sent() if isinstance(message, Recover)]
        assert {message.incarnation for message in told} == {last}
        cluster.hello(*cluster.nodes, ready=True)
        assert {type(message) for _, message in cluster.sent()} == {Start}


def test_strangers_are_not_listened_to() -> None:
    cluster = Cluster()
    cluster.processes["node-9"] = "node-9#1"
    cluster.hello("node-9", incarnation=0)
    cluster.hello("node-0", "node-1", incarnation=0)
    assert cluster.coordinator.jobs == []


def test_when_the_registry_cannot_be_written_nothing_is_decided_any_more() -> None:
    """Whether it was written is unknown: only a new master can tell, by reading."""
    cluster = Cluster()
    cluster.hello(*cluster.processes, incarnation=0)
    [job] = cluster.coordinator.jobs
    cluster.coordinator.done(job, Unavailable("disk full"))
    assert cluster.phase() is Phase.BROKEN
    cluster.hello(*cluster.nodes, ready=True)
    cluster.coordinator.consider_snapshot(99)
    assert cluster.sent() == []


def test_a_failure_of_an_earlier_incarnation_does_not_count() -> None:
    cluster = Cluster().run()
    restart(cluster, "node-0")
    cluster.write()
    cluster.coordinator.failed(Failed(1, "FunctionFailed", "old"))
    assert cluster.phase() is Phase.LOADING


# Snapshots ------------------------------------------------------------------------------------


def test_the_steps_of_a_snapshot_come_in_order() -> None:
    cluster = Cluster(fronts=2).run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    assert cluster.sent() == [(node, Prepare(1, 50)) for node in cluster.nodes]
    cluster.coordinator.prepared("node-0", Prepared(1, 0))
    cluster.coordinator.prepared("node-0", Prepared(1, 0))
    assert cluster.coordinator.jobs == []  # one part is not durable yet
    cluster.coordinator.prepared("node-1", Prepared(1, 0))
    assert cluster.sent() == []  # not committed before it is written
    [state] = cluster.write()
    assert state.snapshots == (SnapshotRecord(1, 50, (50, 50), 1),)
    assert cluster.coordinator.snapshots == 1
    names = [name for name, message in cluster.sent() if isinstance(message, Committed)]
    assert names == ["node-0", "node-1", "front-0", "front-1"]


def test_inputs_are_trimmed_only_below_the_oldest_snapshot_that_is_kept() -> None:
    """The last two are: a damaged one falls back to the one before."""
    cluster = Cluster().run()
    trims = []
    for number, time in ((1, 50), (2, 60), (3, 70)):
        cluster.pass_time(INTERVAL + 0.1)
        cluster.coordinator.consider_snapshot(time)
        for node in cluster.nodes:
            cluster.coordinator.prepared(node, Prepared(number, 0))
        cluster.write()
        sent = cluster.sent()
        trims += [m.trim for name, m in sent if name == "front-0" and isinstance(m, Committed)]
    assert [record.number for record in cluster.written.snapshots] == [3, 2]
    assert max(trims) <= 60
    assert trims[-1] == 60


def test_a_snapshot_is_taken_only_when_it_is_time_and_there_is_something_new() -> None:
    cluster = Cluster().run()
    cluster.coordinator.consider_snapshot(50)
    assert cluster.sent() == []
    cluster.snapshot(1, 50)
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    assert cluster.sent() == []
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(INFINITY)
    assert cluster.sent() == []  # it is over: nothing to come back to
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(51)
    assert {type(message) for _, message in cluster.sent()} == {Prepare}


def test_two_snapshots_are_never_under_way_together() -> None:
    cluster = Cluster().run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    cluster.sent()
    cluster.pass_time(3 * INTERVAL)
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == []
    cluster.coordinator.prepared("node-0", Prepared(1, 0))
    cluster.coordinator.prepare_failed("node-1", PrepareFailed(1, "disk full"))
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == [(node, Prepare(2, 60)) for node in cluster.nodes]


def test_a_snapshot_with_a_part_that_failed_is_given_up_when_all_have_answered() -> None:
    cluster = Cluster().run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    cluster.sent()
    cluster.coordinator.prepare_failed("node-0", PrepareFailed(1, "disk full"))
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == []
    cluster.coordinator.prepared("node-1", Prepared(1, 0))
    assert cluster.write() == []
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == [(node, Prepare(2, 60)) for node in cluster.nodes]
    for node in cluster.nodes:
        cluster.coordinator.prepared(node, Prepared(2, 0))
    cluster.write()
    assert cluster.written.snapshots == (SnapshotRecord(2, 60, (60,), 1),)


def test_answers_about_another_snapshot_do_not_count() -> None:
    cluster = Cluster().run()
    cluster.snapshot(1, 50)
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(60)
    for node in cluster.nodes:
        cluster.coordinator.prepared(node, Prepared(1, 0))
        cluster.coordinator.prepare_failed(node, PrepareFailed(1, "late"))
    assert cluster.write() == []
    for node in cluster.nodes:
        cluster.coordinator.prepared(node, Prepared(2, 0))
    assert [record.number for record in cluster.write()[0].snapshots] == [2, 1]


def test_a_recovery_gives_up_the_snapshot_under_way() -> None:
    cluster = Cluster().run()
    cluster.snapshot(1, 50)
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(60)
    cluster.coordinator.prepared("node-0", Prepared(2, 0))
    restart(cluster, "node-1")
    cluster.coordinator.prepared("node-1", Prepared(2, 0))
    cluster.write()
    assert [record.number for record in cluster.written.snapshots] == [1]
    told = [message for _, message in cluster.sent() if isinstance(message, Recover)]
    assert {message.number for message in told} == {1}


def test_a_snapshot_may_take_as_long_as_it_takes() -> None:
    """A marker that is lost is a gap in a channel: who misses it says so."""
    cluster = Cluster().run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(50)
    cluster.pass_time(3600.0)
    assert cluster.phase() is Phase.RUNNING
    for node in cluster.nodes:
        cluster.coordinator.prepared(node, Prepared(1, 0))
    assert [record.number for record in cluster.write()[0].snapshots] == [1]


def test_numbers_of_snapshots_go_on_from_the_one_that_was_recovered_from() -> None:
    cluster = Cluster().run()
    cluster.snapshot(1, 50)
    cluster.snapshot(2, 60)
    restart(cluster, "node-0")
    cluster.write()
    cluster.hello(*cluster.nodes, ready=True)
    cluster.sent()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(60)
    assert cluster.sent() == []  # nothing new
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(70)
    assert cluster.sent() == [(node, Prepare(3, 70)) for node in cluster.nodes]


# Damaged snapshots ----------------------------------------------------------------------------


def unloadable(cluster: Cluster, number: int) -> None:
    incarnation = cluster.coordinator.state.incarnation
    cluster.coordinator.unloadable("node-1", Unloadable(incarnation, number, "damaged"))


def test_an_unloadable_snapshot_is_left_and_the_one_before_is_used() -> None:
    cluster = Cluster().run()
    cluster.snapshot(1, 50)
    cluster.snapshot(2, 60)
    restart(cluster, "node-1")
    cluster.write()
    cluster.sent()
    unloadable(cluster, 2)
    assert cluster.sent() == []
    [state] = cluster.write()
    assert [record.number for record in state.snapshots] == [1]
    told = [message for _, message in cluster.sent() if isinstance(message, Recover)]
    assert {(m.incarnation, m.number, m.time) for m in told} == {(3, 1, 50)}
    cluster.hello(*cluster.nodes, ready=True)
    [(_, start)] = cluster.sent()
    assert isinstance(start, Start)
    assert start.offset == 50


def test_two_nodes_that_cannot_load_the_same_snapshot_go_back_by_one_only() -> None:
    cluster = Cluster().run()
    cluster.snapshot(1, 50)
    cluster.snapshot(2, 60)
    restart(cluster, "node-1")
    cluster.write()
    for node in cluster.nodes:
        cluster.coordinator.unloadable(node, Unloadable(2, 2, "damaged"))
    cluster.write()
    assert [record.number for record in cluster.written.snapshots] == [1]
    assert cluster.phase() is Phase.LOADING


def test_when_no_snapshot_is_left_everything_is_replayed_from_the_empty_state() -> None:
    cluster = Cluster().run()
    for number in (1, 2, 3):
        cluster.snapshot(number, 40 + 10 * number)
    restart(cluster, "node-1")
    cluster.write()
    for number in (3, 2):
        unloadable(cluster, number)
        cluster.sent()
        cluster.write()
    assert cluster.written.snapshots == ()
    told = [message for _, message in cluster.sent() if isinstance(message, Recover)]
    assert {(message.number, message.time) for message in told} == {(0, 0)}
    unloadable(cluster, 0)  # there is nothing before the empty state
    assert cluster.phase() is Phase.STOPPING
    assert "SnapshotDamaged" in cluster.coordinator.error


def test_two_phase_stops_at_a_damaged_snapshot() -> None:
    """Its outputs have left already: an older one would give others."""
    records = SnapshotRecord(2, 0, (60,)), SnapshotRecord(1, 0, (50,))
    cluster = Cluster(mode="two-phase", state=ClusterState("me", 5, 1, records))
    cluster.hello(*cluster.processes, incarnation=0)
    cluster.write()
    cluster.sent()
    unloadable(cluster, 2)
    cluster.write()
    assert cluster.phase() is Phase.STOPPED
    assert "SnapshotDamaged: node-1 cannot load snapshot 2" in cluster.coordinator.error
    assert {type(message) for _, message in cluster.sent()} == {Stop}


def test_a_run_that_began_from_a_savepoint_does_not_begin_anew_without_it() -> None:
    records = (SnapshotRecord(1, 40, (40,)),)
    cluster = Cluster(state=ClusterState("me", 2, 0, records, base=1))
    cluster.hello(*cluster.processes, incarnation=0)
    cluster.write()
    unloadable(cluster, 1)
    assert cluster.phase() is Phase.STOPPING
    assert "SnapshotDamaged: node-1 cannot load snapshot 1" in cluster.coordinator.error


# Epochs ---------------------------------------------------------------------------------------


def test_a_snapshot_by_markers_begins_at_the_fronts_and_keeps_their_offsets() -> None:
    cluster = Cluster(fronts=2, mode="two-phase").run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(0)
    assert cluster.sent() == [(front, BeginEpoch(1)) for front in cluster.fronts]
    for node in cluster.nodes:
        cluster.coordinator.prepared(node, Prepared(1, 0))
    assert cluster.write() == []  # fronts have a part as well
    cluster.coordinator.prepared("front-1", Prepared(1, 88))
    cluster.coordinator.prepared("front-0", Prepared(1, 77))
    [state] = cluster.write()
    assert state.snapshots == (SnapshotRecord(1, 0, (77, 88), 1),)
    committed = {name: m for name, m in cluster.sent() if isinstance(m, Committed)}
    assert set(committed) == {*cluster.nodes, *cluster.fronts}
    assert (committed["front-0"].trim, committed["front-1"].trim) == (77, 88)


def test_without_snapshots_none_is_taken() -> None:
    cluster = Cluster(mode="none").run()
    cluster.pass_time(5 * INTERVAL)
    cluster.coordinator.consider_snapshot(99)
    assert cluster.sent() == []


def test_of_productions_only_the_inputs_that_nobody_needs_are_written_down() -> None:
    cluster = Cluster(fronts=2, mode="strong-productions").run()
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(0)
    assert cluster.write() == []
    cluster.pass_time(INTERVAL + 0.1)
    cluster.coordinator.consider_snapshot(40)
    assert cluster.sent() == [(node, Prepare(1, 40)) for node in cluster.nodes]
    cluster.coordinator.prepared("node-0", Prepared(1, 17))
    assert cluster.write() == []
    cluster.coordinator.prepared("node-1", Prepared(1, 0))
    assert cluster.write()[0].snapshots == (SnapshotRecord(1, 40, (40, 40), 1, (17, 0)),)
    assert ("front-0", Committed(1, 0, 40)) in cluster.sent()


def test_of_productions_every_node_loads_the_latest_that_it_has() -> None:
    """Which is no older than what it had when the last snapshot was written down."""
    records = (SnapshotRecord(7, 40, (40,), 2, (17, 5)),)
    cluster = Cluster(mode="strong-productions", state=ClusterState("me", 9, 3, records))
    cluster.hello(*cluster.processes, incarnation=0)
    cluster.write()
    for (_, message), number in zip(cluster.sent(), (17, 5), strict=True):
        assert isinstance(message, Recover)
        assert (message.number, message.time) == (number, 40)
    cluster.coordinator.unloadable("node-0", Unloadable(4, 17, "damaged"))
    assert cluster.phase() is Phase.STOPPING, "what has left cannot be made again"
    assert "SnapshotDamaged" in cluster.coordinator.error
