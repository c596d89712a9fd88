"""With label order, after the user has changed the code: what is there stays, what is new follows,
and from t_last on a replay has to be the same again."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.barrier.barrier import NOTHING
from driftline.barrier.ordered import UNKNOWN
from driftline.engine.errors import NotDeterministic, StateMismatch
from driftline.engine.sinks import MemoryConsumer
from tests.barrier.barriers import GROUPS, connected, hold, ordered

OLD, NEW = "old", "new"


@dataclass
class Place:
    """The newest snapshot, and the consumer, as they survive crashes."""

    consumer: MemoryConsumer = field(default_factory=MemoryConsumer)
    start: int = 1
    checksum: int = 0
    taken: str = OLD

    def run(self, code: str, until: int, lost: int, cut: int, odd: bool = False) -> None:
        """Work off records up to `until`, and crash.

        The consumer gets no bundle with times above `until - lost`; a snapshot is taken `cut`
        records before what it has, unless that is older than the one before. `odd`: other outputs.
        """
        barrier = ordered(start=self.start, checksum=self.checksum, same_code=self.taken == code)
        last = self.consumer.last("barrier-0", GROUPS)
        barrier.last(last.t_last, last.checksum, last.blobs)
        for time in range(self.start, until + 1):
            if time % 3 or code == OLD:  # the new code makes fewer outputs
                hold(barrier, ((time, 0), 0, (code, time, odd), 1))
            barrier.advance(time + 1)
            bundle = barrier.take_bundle(1)
            if bundle is not None and bundle.t_last <= until - lost:
                self.consumer.deliver(bundle)
                barrier.stored(bundle.t_last)
        barrier.validate()
        if (time := barrier.delivered - cut) > self.start:
            self.start, self.checksum, self.taken = time, barrier.checksum_before(time), code

    def outputs(self) -> list[tuple[int, object]]:
        return [(item.label[0], item.value) for item in self.consumer.items]


runs = st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 6))


@given(before=st.lists(runs, max_size=3), after=st.lists(runs, max_size=4))
def test_what_is_there_stays_and_what_is_new_follows_whatever_crashes(
    before: list[tuple[int, int, int]], after: list[tuple[int, int, int]]
) -> None:
    place, until = Place(), 0
    for more, lost, cut in before:
        until = max(place.start - 1, until) + more
        place.run(OLD, until, lost, cut)
    t_last = max((time for time, _ in place.outputs()), default=0)
    for more, lost, cut in after:
        until += more
        place.run(NEW, until, lost, cut)
    place.run(NEW, until + 6, 0, 0)
    assert place.outputs() == [(time, (OLD, time, False)) for time in range(1, t_last + 1)] + [
        (time, (NEW, time, False)) for time in range(t_last + 1, until + 7) if time % 3
    ]


def changed(cut: int) -> Place:
    """Outputs up to 10 by old code, and up to 14 by new code; its snapshot is `cut` before that."""
    place = Place()
    place.run(OLD, 10, lost=0, cut=5)
    place.run(NEW, 14, lost=0, cut=cut)
    return place


def test_a_snapshot_among_outputs_by_other_code_has_no_checksum() -> None:
    assert (changed(cut=6).start, changed(cut=6).checksum) == (9, UNKNOWN)
    assert (changed(cut=3).start, changed(cut=3).checksum != UNKNOWN) == (12, True)


def test_after_a_snapshot_by_the_new_code_a_replay_has_to_be_the_same_again() -> None:
    place = changed(cut=3)
    with pytest.raises(NotDeterministic, match=r"\[13, 0\]|\[14, 0\]"):
        place.run(NEW, 20, 0, 0, odd=True)


def test_outputs_that_are_gone_are_noticed_all_the_same() -> None:
    place = changed(cut=6)
    barrier = ordered(start=place.start, checksum=place.checksum)
    with pytest.raises(StateMismatch, match="outputs have been changed or removed"):
        barrier.last(NOTHING, 0, ())


def test_without_a_change_nothing_is_unknown() -> None:
    barrier = ordered(same_code=False)
    connected(barrier)
    hold(barrier, ((1, 0), 0, "a", 1))
    barrier.advance(5)
    assert barrier.checksum_before(5) == barrier.checksum != UNKNOWN
