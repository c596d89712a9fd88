"""Definitions and protocols of "Delivery, consistency, and determinism", one test for each.

Trofimov, Kuralenok, Marshalkin, Novikov: Delivery, consistency, and determinism: rethinking
guarantees in distributed stream processing. Each docstring quotes what its test checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, permutations

import pytest

from driftline.barrier.ordered import OrderedBarrier
from driftline.coordinator.registry import WriteState
from driftline.engine.flow.context import Context
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY
from driftline.engine.reference import interpret, run_reference
from driftline.engine.snapshots.jobs import LoadSnapshot, StoreSnapshot
from driftline.engine.state.managed import ValueState
from driftline.engine.wire.messages import (
    Bundle,
    BundleStored,
    Committed,
    FetchLast,
    Frame,
    Hello,
    LastBundle,
    Message,
    Prepare,
    Prepared,
    Recover,
    Start,
)
from tests.room import Room

Records = list[tuple[int, object]]

LEFT: Records = [(1, "a"), (5, "c")]
RIGHT: Records = [(3, "b")]
"""Two asynchronous input channels: "a" and "c" come on one, "b" on the other."""


def concatenation(arrived: list[str] | None = None) -> Flow:
    """An operation that concatenates input strings and delivers it after each item."""
    flow = Flow("concatenation")

    def key(text: str) -> int:
        if arrived is not None:
            arrived.append(text)
        return 0

    def join(text: str, joined: ValueState[str]) -> str:
        joined.set(joined.get("") + text)
        return joined.get("")

    both = flow.source("left").union(flow.source("right").map(str.lower, name="lower"))
    both.key_by(key).scan(join, ValueState("joined"), name="join").sink()
    return flow


def windows() -> Flow:
    """A windowed operation (window = 2) that concatenates strings (section III-B, figure 1)."""
    flow = Flow("windows")

    def pairs(context: Context, text: str, last: ValueState[str]) -> Iterator[str]:
        yield last.get("") + text
        last.set(text)

    both = flow.source("left").union(flow.source("right"))
    both.key_by(lambda _: 0).process(pairs, ValueState("last"), name="pairs").sink()
    return flow


def reference(flow: Flow, *inputs: Records) -> list[object]:
    return [item.value for item in interpret(flow, inputs)]


# II Motivation --------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(8), range(8, 16), range(16, 24)], ids=str)
def test_after_a_and_ab_the_next_output_is_abc_though_the_replay_races(seeds: range) -> None:
    """Section II: "if input elements are strings "a", "b", "c", and user have already received
    "a" and "ab", it is expected that the current state is "ab", and the next output element is
    "abc". However, after recovery and state reprocessing, the current state can become "ba"."
    """
    raced = 0
    for seed in seeds:
        arrived: list[str] = []
        room = Room(concatenation(arrived), [LEFT, RIGHT], seed, interval=99.0, window=1)
        room.run(room.has(2))
        assert room.values[:2] == ["a", "ab"]
        for node in room.nodes:
            room.crash(node)
        arrived.clear()
        room.run(room.stopped)
        assert room.values == ["a", "ab", "abc"]
        raced += "a" not in arrived[: arrived.index("b")]
    assert raced, "in no replay b came before a: the test shows nothing"


def test_without_an_order_the_replay_may_contradict_what_was_delivered() -> None:
    """Section II: "the next output element "bac" will be inconsistent with the previously delivered
    elements "a" and "ab"."
    """
    consistent = ["a", "ab", "abc"]
    found = []
    for seed in range(30):
        room = Room(
            concatenation(), [LEFT, RIGHT], seed, mode="at-least-once", interval=99.0, window=1
        )
        room.run(room.has(2))
        if room.values[:2] == consistent[:2]:
            for node in room.nodes:
                room.crash(node)
        room.run(room.stopped)
        found.append(room.values)
    contradictions = [v for v in found if v[:2] == consistent[:2] and set(v) - set(consistent)]
    assert contradictions, "the simple replay is not told apart from a consistent one"


# III Formal model -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_end_user_receives_be_and_not_de(seed: int) -> None:
    """Section III-B: "the system reaches precisely the same state after recovery. Eventually, the
    end-user receives the output element be that is expected within such execution." III-D: "de is
    inconsistent with the previous output, because element with prefix d has already been released"
    """
    left: Records = [(1, "a"), (2, "c"), (8, "e")]
    right: Records = [(4, "d"), (6, "b")]
    room = Room(windows(), [left, right], seed, window=1)
    room.run(room.has(4))
    assert room.values == ["a", "ac", "cd", "db"]
    for node in room.nodes:
        room.crash(node)
    room.run(room.stopped)
    assert room.values == ["a", "ac", "cd", "db", "be"]


@pytest.mark.parametrize("victim", ["node-0", "node-1", "front-0", "front-1", "master", "consumer"])
def test_each_output_is_one_that_a_run_without_failures_gives_and_none_is_missing(
    victim: str,
) -> None:
    """Definition 6: "System provides for exactly-once if it is possible to obtain each output
    element in a system with a reference recovery function." Here with equality: the possible
    output is one, and it is complete.
    """
    left: Records = [(time, f"l{time}") for time in range(1, 12, 2)]
    right: Records = [(time, f"r{time}") for time in range(2, 12, 3)]
    wanted = list(interpret(concatenation(), [left, right]))
    for crash_at in (40, 150, 260):
        room = Room(concatenation(), [left, right], crash_at)
        for _ in range(crash_at):
            room.step()
        room.crash(victim)
        room.run(room.stopped)
        assert not room.master.coordinator.error
        assert room.items == wanted
        assert room.consumer.items == wanted, "not in label order"


def test_at_least_once_is_what_a_duplicated_input_could_give() -> None:
    """Section III-E: "At-least-once can be reproduced if the input contains duplicated items."""
    left: Records = [(time, f"{time} ") for time in range(1, 8)]
    repeated = 0
    for seed in range(8):
        room = Room(concatenation(), [left, []], seed, mode="at-least-once", interval=99.0)
        room.run(room.has(3))
        room.crash("node-0")
        room.run(room.stopped)
        last = max(room.values, key=lambda text: len(str(text)))
        assert set(str(last).split()) == {str(time) for time, _ in left}
        repeated += len(room.values) > len(left)
    assert repeated, "nothing was ever repeated"


def test_concatenation_does_not_commute() -> None:
    """Definition 9: "D contains non-commutative operation if" ((x, y), s1) is in D and ((y, x),
    s1) is not.
    """
    finals = {
        reference(concatenation(), list(enumerate(order, 1)), [])[-1]
        for order in permutations("abc")
    }
    assert len(finals) == 6


def test_repeated_runs_on_the_same_data_produce_the_same_results() -> None:
    """Section I: "The determinism means that repeated runs of the system on the same data produce
    the same results." III-F: "An essential property of a deterministic system is that it preserves
    the same order of elements before non-commutative operations on each run."
    """
    left: Records = [(time, f"l{time}") for time in range(1, 12, 2)]
    right: Records = [(time, f"r{time}") for time in range(1, 12, 3)]
    outcomes = set()
    dialogues = set()
    for seed in range(12):
        room = Room(concatenation(), [left, right], seed, nodes=1 + seed % 3)
        room.run(room.stopped)
        outcomes.add(tuple(map(repr, room.items)))
        dialogues.add(len(room.said))
    assert len(dialogues) > 6, "all runs went the same way"
    assert outcomes == {tuple(map(repr, interpret(concatenation(), [left, right])))}


# IV-A MillWheel -------------------------------------------------------------------------------


def test_each_element_is_saved_before_it_may_influence_others() -> None:
    """Section IV-A: "each streaming element is saved before it may influence other elements or
    operation states."
    """
    records: Records = [(time, f"r{time}") for time in range(1, 40)]
    room = Room(concatenation(), [records, []], mode="strong-productions", window=20)
    room.held_disks.update(room.nodes)
    for name in room.nodes:  # but for what there is to load
        room.run(lambda name=name: bool(room.jobs.get(name)))  # type: ignore[misc]
        room._carry_out(name)
    room.run(lambda: all(room.jobs[name] for name in room.nodes))
    for _ in range(1000):
        room.step()
    assert [m for _, sender, _, m in room.heard(Frame) if sender in room.nodes] == []
    assert room.values == []
    assert room.master.tracker is not None
    assert room.master.tracker.processed <= 1
    room.held_disks.clear()
    room.run(room.stopped)
    assert len(room.values) == 39


def test_of_many_possible_results_only_one_is_computed_and_saved() -> None:
    """Section IV-A: "Strong productions method guarantees that even if many possible results of a
    non-commutative operation may be obtained due to races, only one of them is computed and saved."
    """
    found = set()
    for seed in range(20):
        room = Room(concatenation(), [LEFT, RIGHT], seed, mode="strong-productions", interval=99.0)
        for count in (1, 2):
            room.run(room.has(count))
            for node in room.nodes:
                room.crash(node)
        room.run(room.stopped)
        assert not room.master.coordinator.error
        shortest, longer, longest = map(str, room.values)
        assert longest.startswith(longer)
        assert longer.startswith(shortest)
        assert sorted(longest) == ["a", "b", "c"]
        found.add(longest)
    assert len(found) > 1, "there was no race"


@pytest.mark.parametrize("victim", ["node-0", "node-1", "front-0", "master", "consumer"])
def test_what_was_saved_is_sent_again_and_what_was_processed_is_dropped(victim: str) -> None:
    """Section IV-A: "Recovery function F resends all saved records in case of failure, and each
    operation deduplicates input that has been already processed."
    """
    left: Records = [(time, f"l{time} ") for time in range(1, 12, 2)]
    right: Records = [(time, f"r{time} ") for time in range(2, 12, 3)]
    wanted = sorted(str(payload) for _, payload in left + right)
    again = 0
    for seed, count in enumerate((1, 2, 4, 5, 7, 8)):
        room = Room(concatenation(), [left, right], seed, mode="strong-productions", window=3)
        room.run(room.has(count))
        room.crash(victim)
        room.run(room.stopped)
        assert not room.master.coordinator.error
        assert len(room.values) == len(wanted)
        longest = max(map(str, room.values), key=len)
        assert sorted(f"{word} " for word in longest.split()) == wanted
        assert all(longest.startswith(str(value)) for value in room.values)
        frames = [m.id for _, who, _, m in room.heard(Frame) if who in room.nodes and m.id]  # type: ignore[attr-defined]
        again += len(frames) - len(set(frames))
    assert again or victim == "consumer", "nothing was ever sent again"


# V Exactly-once over determinism --------------------------------------------------------------


def test_an_output_is_released_before_a_snapshot_is_taken() -> None:
    """Section V: "such a system can release an output element before a snapshot is taken because it
    can reproduce the same state in case of failure."
    """
    room = Room(concatenation(), [LEFT, RIGHT], interval=99.0)
    room.run(room.stopped)
    assert room.values == ["a", "ab", "abc"]
    assert room.heard(Prepare) == []
    two_phase = Room(concatenation(), [LEFT, RIGHT], mode="two-phase", interval=99.0)
    for _ in range(3000):
        two_phase.step()
    assert two_phase.values == [], "the opponent has to wait for its commit"


def test_an_operation_that_is_not_deterministic_is_found_out() -> None:
    """Section V: "The limitation of this approach is that only deterministic operations (e.g.
    without the usage of random values) are allowed in a data flow."
    """
    calls: list[str] = []
    flow = Flow("not deterministic")

    def count_calls(text: str, state: ValueState[int]) -> tuple[str, int]:
        calls.append(text)
        return text, len(calls)

    flow.source("in").key_by(lambda _: 0).scan(count_calls, ValueState("state")).sink()
    records: Records = [(time, f"t{time}") for time in range(1, 9)]
    room = Room(flow, [records], interval=99.0)
    room.run(room.has(4))
    for node in room.nodes:
        room.crash(node)
    room.run(room.stopped)
    assert "NotDeterministic" in room.master.coordinator.error
    assert "label [" in room.master.coordinator.error


def test_a_total_order_is_defined_by_the_labels() -> None:
    """Section V: "x1 < x2 <=> t(x1) < t(x2)": different outputs have different labels, in order."""
    flow = Flow("labels")
    words = flow.source("in").flat_map(str.split, name="words")
    words.union(words.map(str.upper, name="upper")).sink("all")
    labels = [item.label for item in run_reference(flow, [["a b", "c d e"]])]
    assert len(set(labels)) == len(labels) == 10
    assert labels == sorted(labels)


# V-A1 Operation states ------------------------------------------------------------------------


def snapshot_under_way() -> Room:
    """Stopped where the coordinator has just decided that a snapshot should be taken."""
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    room = Room(concatenation(), [left, []], seed=5, window=2)
    room.run(lambda: bool(room.heard(Prepare)))
    return room


def test_the_steps_of_a_snapshot() -> None:
    """Section V-A1: "Coordinator decides that snapshot should be taken [...] On the notification,
    nodes asynchronously make operation states recoverable and send to Coordinator the acceptance
    message. When the Coordinator receives all acceptance messages, it saves the information about
    which input elements belong to this snapshot".
    """
    room = snapshot_under_way()
    room.run(lambda: len(room.heard(Committed)) >= 4)
    prepare = {to: when for when, _, to, m in room.heard(Prepare) if m == Prepare(1, time_of(m))}
    accepted = {node: when for when, node, _, m in room.heard(Prepared) if m == Prepared(1, 0)}
    committed = min(when for when, _, _, _ in room.heard(Committed))
    assert set(prepare) == set(accepted) == set(room.nodes)
    assert all(prepare[node] < accepted[node] < committed for node in room.nodes)
    stored = {
        who: number
        for number, (who, job) in enumerate(room.done)
        if isinstance(job, StoreSnapshot) and job.number == 1
    }
    saved = min(
        number
        for number, (_, job) in enumerate(room.done)
        if isinstance(job, WriteState) and job.state.snapshots
    )
    assert set(stored) == set(room.nodes)
    assert max(stored.values()) < saved


def time_of(message: Message) -> int:
    assert isinstance(message, Prepare)
    return message.time


def test_nothing_is_saved_before_all_have_accepted() -> None:
    """Section V-A1: "When the Coordinator receives all acceptance messages, it saves"."""
    room = snapshot_under_way()
    room.held_disks.add("node-1")
    for _ in range(500):
        room.step()
    assert room.state is not None
    assert room.state.snapshots == ()
    assert room.heard(Committed) == []
    room.held_disks.clear()
    room.run(lambda: room.state is not None and bool(room.state.snapshots))


def test_barriers_take_no_part_in_a_snapshot() -> None:
    """Section V-A1: "output releasing agents (barriers) do not take part in a distributed
    transaction, because in a deterministic system there is no need to wait until the snapshot is
    taken in order to release output elements consistently."
    """
    room = snapshot_under_way()
    room.held_disks.update(room.nodes)
    before = len(room.values)
    room.run(room.has(before + 10))
    assert room.state is not None
    assert room.state.snapshots == ()


def test_the_time_of_the_last_input_element_is_sufficient() -> None:
    """Section V-A1: "it is sufficient to save only t(a) of the last input element that affects the
    snapshot": what is loaded is the state as of that time, and the rest is replayed.
    """
    room = snapshot_under_way()
    room.run(lambda: room.state is not None and len(room.state.snapshots) == 2)
    assert room.state is not None
    before = room.state
    for node in room.nodes:
        room.crash(node)
    room.run(
        lambda: bool(room.heard(Start)) and room.heard(Start)[-1][3] != room.heard(Start)[0][3]
    )
    starts = [message for _, _, _, message in room.heard(Start) if isinstance(message, Start)]
    assert starts[-1].offset >= before.snapshots[0].time > 1
    room.run(room.stopped)
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    assert room.values == reference(concatenation(), left, [])


# V-A2 Last output element ---------------------------------------------------------------------


def test_outputs_are_released_with_growing_labels() -> None:
    """Section V-A2: "the Barrier must release output items with monotonically increasing t(x)."""
    left: Records = [(time, f"l{time}") for time in range(1, 30)]
    right: Records = [(time, f"r{time}") for time in range(1, 30, 2)]
    room = Room(concatenation(), [left, right], window=8)
    room.run(room.stopped)
    labels = [item.label for item in room.consumer.items]
    assert len(labels) == 44
    assert all(one < other for one, other in pairwise(labels))


def test_a_bundle_holds_output_items_and_t_last_and_is_acknowledged() -> None:
    """Section V-A2: "On each output delivery, Barrier sends a bundle to the data consumer. This
    bundle contains an output item and t_last. The Consumer must acknowledge that it received the
    bundle."
    """
    room = Room(concatenation(), [LEFT, RIGHT], window=1)
    room.run(room.stopped)
    bundles = [message for _, _, _, message in room.heard(Bundle)]
    stored = [message for _, _, _, message in room.heard(BundleStored)]
    assert len(bundles) >= 2
    for bundle in bundles:
        assert isinstance(bundle, Bundle)
        assert bundle.blobs
        assert BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last) in stored
    assert len(room.consumer.items) == 3


def test_no_bundle_is_sent_before_the_one_before_it_is_acknowledged() -> None:
    """Section V-A2: "Barrier does not send new output bundle until the previous one is not
    acknowledged."
    """
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    room = Room(concatenation(), [left, []], seed=3, window=8)
    room.run(room.has(1))
    room.silent.add("consumer")
    for _ in range(1500):
        room.step()
    waiting = [
        data for (_, to), channel in room.channels.items() if to == "consumer" for data in channel
    ]
    room.silent.clear()
    room.run(room.stopped)
    assert waiting
    latest: dict[str, int] = {}
    acknowledged: set[tuple[str, int]] = set()
    for _, _, _, message in room.said:
        if isinstance(message, Bundle):  # the same one may be sent again
            before = latest.get(message.barrier, message.t_last)
            assert before == message.t_last or (message.barrier, before) in acknowledged
            latest[message.barrier] = max(before, message.t_last)
        elif isinstance(message, BundleStored):
            acknowledged.add((message.barrier, message.t_last))
    assert len(acknowledged) > 3
    assert room.values == reference(concatenation(), left, [])


def test_the_consumer_returns_the_last_bundle_on_request() -> None:
    """Section V-A2: "Consumer must return last received bundle on Barrier's request."""
    room = Room(concatenation(), [LEFT, RIGHT], window=1)
    room.run(room.has(2))
    delivered = [m for _, _, _, m in room.heard(Bundle) if isinstance(m, Bundle)]
    before = len(room.said)
    for node in room.nodes:
        room.crash(node)

    def answered() -> dict[str, LastBundle]:
        heard = [m for _, _, _, m in room.heard(LastBundle, before) if isinstance(m, LastBundle)]
        return {message.barrier: message for message in heard}

    room.run(lambda: len(answered()) == len(room.nodes))
    answers = answered()
    [barrier] = {bundle.barrier for bundle in delivered}
    answer, last = answers.pop(barrier), delivered[-1]
    assert (answer.t_last, answer.blobs, answer.checksum) == (
        last.t_last,
        last.blobs,
        last.checksum,
    )
    [other] = answers.values()
    assert (other.t_last, other.blobs) == (-1, ())


@pytest.mark.parametrize("t_last", [0, 1, 3, 6])
def test_items_up_to_t_last_are_filtered_out(t_last: int) -> None:
    """Section V-A2: "the Barrier can filter out any items with t(x) less than or equal to the t(x)
    of the last released item t_last in order to preserve exactly-once after recovery."
    """
    first = OrderedBarrier("barrier-0", (0, 127))
    first.last(-1, 0, ())
    last: Bundle | None = None
    for time in range(1, t_last + 1):
        first.hold(0, [(time, 0)], [time], None)
        first.advance(time + 1)
        last = first.take_bundle(1) or last
        first.stored(time)
    again = OrderedBarrier("barrier-0", (0, 127))
    if last is None:
        again.last(-1, 0, ())
    else:
        again.last(last.t_last, last.checksum, last.blobs)
    for time in range(1, 7):
        again.hold(0, [(time, 0)], [time], None)
    again.advance(INFINITY)
    bundle = again.take_bundle(2)
    assert len(bundle.blobs if bundle is not None else ()) == 6 - t_last


# V-B Recovery ---------------------------------------------------------------------------------


def recovering() -> tuple[Room, int]:
    """A room in which a node has just failed, and how much was said before."""
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    room = Room(concatenation(), [left, []], seed=9, window=2)
    room.run(lambda: room.state is not None and bool(room.state.snapshots) and len(room.values) > 5)
    before = len(room.said)
    room.crash("node-0")
    return room, before


def test_the_steps_of_a_restart() -> None:
    """Section V-B: "Coordinator broadcasts a notification to begin the recovery process. Operations
    receive these notifications and fetch their states from state storage. [...] Barriers request
    the last released bundle from data consumers and send acknowledgments that they are ready [...]
    When the Coordinator receives all acknowledgments from groupings and barriers, it requests data
    producer to replay starting from the t(a) of the last snapshot."
    """
    room, before = recovering()
    jobs = len(room.done)
    room.run(lambda: bool(room.heard(Start, before)))
    assert room.state is not None
    snapshot = room.state.snapshots[0]
    ready: list[int] = []
    for node in room.nodes:
        notified = next(w for w, _, to, _ in room.heard(Recover, before) if to == node)
        asked = next(w for w, sender, _, _ in room.heard(FetchLast, before) if sender == node)
        told = next(w for w, _, to, _ in room.heard(LastBundle, before) if to == node)
        ready.append(
            next(
                w
                for w, sender, _, m in room.heard(Hello, before)
                if sender == node and isinstance(m, Hello) and m.ready and m.incarnation == 2
            )
        )
        assert notified < asked < told < ready[-1]
        loads = [job for who, job in room.done[jobs:] if who == node]
        assert LoadSnapshot(snapshot.number, snapshot.taken) in loads
    when, _, _, start = room.heard(Start, before)[0]
    assert isinstance(start, Start)
    assert when > max(ready)
    assert (start.incarnation, start.offset) == (2, snapshot.offsets[0])


def test_processing_does_not_restart_until_all_operations_obtain_consistent_states() -> None:
    """Section V-B: "Processing does not restart until all operations obtain consistent states.
    [...] Therefore, the elements are not lost."
    """
    room, before = recovering()
    room.held_disks.add("node-0")
    for _ in range(1200):
        room.step()
    assert room.heard(Start, before) == []
    room.held_disks.clear()
    room.run(room.stopped)
    started = room.heard(Start, before)[0][0]
    frames = [
        when
        for when, (_, _, header, message) in enumerate(room.said)
        if isinstance(message, Frame) and header.incarnation == 2
    ]
    assert min(frames) > started
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    assert room.values == reference(concatenation(), left, [])


def test_duplicates_are_not_produced() -> None:
    """Section V-B: "Duplicates are not produced because, at the moment when Processing is
    restarted, it is ensured that Barrier has obtained the last released t(x) and can filter out
    extra items."
    """
    room, _ = recovering()
    delivered = len(room.values)
    room.run(room.has(delivered + 3))
    room.crash("node-1")
    room.run(room.stopped)
    labels = [item.label for item in room.consumer.items]
    assert len(set(labels)) == len(labels) == 39


def test_a_lost_packet_restarts_from_the_last_snapshot() -> None:
    """Section V-B: "In the case of packet loss or node failure, a failure detector mechanism can
    enforce the Coordinator to begin computations restart from the last successful snapshot."
    """
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    for sender, to in (("front-0", "node"), ("master", "node"), ("node", "master")):
        room = Room(concatenation(), [left, []], seed=11, window=2)
        room.run(room.has(5))
        lost = 0
        while not lost:
            room.step()
            for channel in list(room.channels):
                if channel[0].startswith(sender) and channel[1].startswith(to):
                    lost += room.lose(*channel)
        room.run(room.stopped)
        assert room.values == reference(concatenation(), left, [])
        assert not room.master.coordinator.error
