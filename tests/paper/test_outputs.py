"""Section V-A2: the last output element, and how barriers and consumers agree on it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from driftline.barrier.ordered import OrderedBarrier
from driftline.engine.labels import INFINITY
from driftline.engine.wire.messages import Bundle, BundleStored, LastBundle
from tests.paper.operations import LEFT, RIGHT, Records, concatenation, reference
from tests.stepped_cluster import SteppedCluster


def test_outputs_are_released_with_growing_labels() -> None:
    """Section V-A2: "the Barrier must release output items with monotonically increasing t(x)."""
    left: Records = [(time, f"l{time}") for time in range(1, 30)]
    right: Records = [(time, f"r{time}") for time in range(1, 30, 2)]
    cluster = SteppedCluster(concatenation(), [left, right], window=8)
    cluster.run(cluster.stopped)
    labels = [item.label for item in cluster.consumer.items]
    assert len(labels) == 44
    assert all(one < other for one, other in pairwise(labels))


def test_a_bundle_holds_output_items_and_t_last_and_is_acknowledged() -> None:
    """Section V-A2: "On each output delivery, Barrier sends a bundle to the data consumer. This
    bundle contains an output item and t_last. The Consumer must acknowledge that it received the
    bundle."
    """
    cluster = SteppedCluster(concatenation(), [LEFT, RIGHT], window=1)
    cluster.run(cluster.stopped)
    bundles = [message for _, _, _, message in cluster.messages_of(Bundle)]
    stored = [message for _, _, _, message in cluster.messages_of(BundleStored)]
    assert len(bundles) >= 2
    for bundle in bundles:
        assert isinstance(bundle, Bundle)
        assert bundle.blobs
        assert BundleStored(bundle.barrier, bundle.incarnation, bundle.t_last) in stored
    assert len(cluster.consumer.items) == 3


def test_no_bundle_is_sent_before_the_one_before_it_is_acknowledged() -> None:
    """Section V-A2: "Barrier does not send new output bundle until the previous one is not
    acknowledged."
    """
    left: Records = [(time, f"l{time}") for time in range(1, 40)]
    cluster = SteppedCluster(concatenation(), [left, []], seed=3, window=8)
    cluster.run(cluster.has(1))
    cluster.silent.add("consumer")
    for _ in range(1500):
        cluster.step()
    waiting = [
        data
        for (_, to), channel in cluster.channels.items()
        if to == "consumer"
        for data in channel
    ]
    cluster.silent.clear()
    cluster.run(cluster.stopped)
    assert waiting
    latest: dict[str, int] = {}
    acknowledged: set[tuple[str, int]] = set()
    for _, _, _, message in cluster.messages:
        if isinstance(message, Bundle):  # the same one may be sent again
            before = latest.get(message.barrier, message.t_last)
            assert before == message.t_last or (message.barrier, before) in acknowledged
            latest[message.barrier] = max(before, message.t_last)
        elif isinstance(message, BundleStored):
            acknowledged.add((message.barrier, message.t_last))
    assert len(acknowledged) > 3
    assert cluster.values == reference(concatenation(), left, [])


def test_the_consumer_returns_the_last_bundle_on_request() -> None:
    """Section V-A2: "Consumer must return last received bundle on Barrier's request."""
    cluster = SteppedCluster(concatenation(), [LEFT, RIGHT], window=1)
    cluster.run(cluster.has(2))
    delivered = [m for _, _, _, m in cluster.messages_of(Bundle) if isinstance(m, Bundle)]
    before = len(cluster.messages)
    for node in cluster.nodes:
        cluster.crash(node)

    def answered() -> dict[str, LastBundle]:
        heard = [
            m for _, _, _, m in cluster.messages_of(LastBundle, before) if isinstance(m, LastBundle)
        ]
        return {message.barrier: message for message in heard}

    cluster.run(lambda: len(answered()) == len(cluster.nodes))
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
    first.handle_last_bundle(-1, 0, ())
    last: Bundle | None = None
    for time in range(1, t_last + 1):
        first.add_outputs(0, [(time, 0)], [time], None)
        first.advance(time + 1)
        last = first.take_bundle(1) or last
        first.mark_stored(time)
    again = OrderedBarrier("barrier-0", (0, 127))
    if last is None:
        again.handle_last_bundle(-1, 0, ())
    else:
        again.handle_last_bundle(last.t_last, last.checksum, last.blobs)
    for time in range(1, 7):
        again.add_outputs(0, [(time, 0)], [time], None)
    again.advance(INFINITY)
    bundle = again.take_bundle(2)
    assert len(bundle.blobs if bundle is not None else ()) == 6 - t_last
