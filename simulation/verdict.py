"""The verdict on a simulated run: its outputs, its progress, and damage that excuses an error.

Outputs: for exactly-once, the items of each barrier must be in label order, and the items of all
barriers together must equal those of the reference interpreter: no item is lost, duplicated, or
absent from the reference (paper "Delivery, consistency, and determinism", Definition 6, with
equality). For policies without an order, only the properties common to every order are compared.

Progress, after the last fault: another bundle is delivered, another record is acknowledged to a
producer, a process ends, or the next run starts. A run without progress counts as stalled after the
roles' own timeout for stalled work plus the time of one recovery. For each master with partitions,
the time of one step-down is added.

Damage: bits of a store that flip before a process that uses the store starts. Correct outputs are
always a correct outcome. If the only copy of some data was damaged, the run may also stop with an
error that names the damaged store. It must never continue with wrong data, or hang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import Random
from typing import Protocol

from msgspec import Struct

from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.coordinator.leadership import LEADER_TIMEOUT_MIN_S
from driftline.deploy.roles.master import STALLED_AFTER_S
from driftline.engine.policy import Output, Policy, SnapshotCut
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack
from driftline.simulation.world.disks import MasterDisk, NodeDisk
from driftline.simulation.world.timeline import Timeline
from driftline.simulation.world.world import World

Projection = Callable[[object], object]
"""Function from a payload to its part that is the same in every order of arrival."""


def judge(
    policy: Policy,
    projection: Projection | None,
    expected: list[Item],
    delivered: Mapping[str, Sequence[Item]],
    value: Callable[[Item], object],
) -> str:
    """Compare the delivered items, per barrier, with the expected ones.

    `projection`: used for policies without order; None: compare labels only. `value`: maps an item
    to its payload.

    Returns the first problem as a sentence; "" if there is none.
    """
    if policy.ordered:
        return _judge_sequence(expected, delivered)
    all_delivered = [item for items in delivered.values() for item in items]
    wanted, got = (Counter(item.label for item in items) for items in (expected, all_delivered))
    lost, extra = (wanted - got).total(), (got - wanted).total()
    if policy.output is Output.AT_ONCE and policy.cut is not SnapshotCut.NONE:
        return f"lost {lost} items" if lost else ""  # at-least-once
    if lost or extra:
        return f"lost {lost} items, {extra} too many"
    if projection is not None:
        wanted_parts, parts = (
            Counter(pack(projection(value(item))) for item in items)
            for items in (expected, all_delivered)
        )
        if wanted_parts != parts:
            return "the values of items differ from the reference"
    return ""


def _judge_sequence(expected: list[Item], delivered: Mapping[str, Sequence[Item]]) -> str:
    for barrier, items in delivered.items():
        labels = [item.label for item in items]
        if labels != sorted(labels):
            return f"{barrier} delivered out of order"
    merged = sorted((i for items in delivered.values() for i in items), key=lambda item: item.label)
    ordered = sorted(expected, key=lambda item: item.label)
    for want, got in zip(ordered, merged, strict=False):
        if (want.label, want.sink, pack(want.value)) != (got.label, got.sink, pack(got.value)):
            return (
                f"sink {got.sink}, label {list(got.label)}: {got.value!r}, but the reference has "
                f"sink {want.sink}, label {list(want.label)}: {want.value!r}"
            )
    if len(merged) != len(ordered):
        return f"{len(merged)} items instead of {len(ordered)}"
    return ""


DAMAGE_ERRORS = ("SnapshotDamaged", "StateMismatch")
"""Classes of the errors that may report damage."""


class Perishable(Protocol):
    """Store whose bits may flip: a disk, or a consumer's files."""

    def flip_bit(self, rng: Random) -> str:
        """Flip one stored bit. Return the name of the damaged object; "" if none was damaged."""


class Damages:
    """Damage done in one run."""

    def __init__(self, timeline: Timeline, registry: MasterDisk) -> None:
        self.names: set[str] = set()
        """Names of the damaged objects."""
        self._timeline = timeline
        self._registry = registry
        self._only_snapshots = True
        """Whether only the snapshots of nodes were damaged."""
        self._only_newest = True
        """Whether every damage left the snapshot before the newest intact."""

    def maybe_damage(self, store: Perishable) -> None:
        """Maybe flip a bit of a store; called before a process that uses the store starts."""
        timeline = self._timeline
        snapshots = isinstance(store, NodeDisk)
        # Damage other stores half as often. That can only end the run, which then tests less.
        if not timeline.happens(timeline.faults.bit_flip / (1 if snapshots else 2)):
            return
        name = store.flip_bit(timeline.rng)
        if not name:
            return
        timeline.counted[f"bit flip in data of {name.partition('-')[0]}"] += 1
        timeline.add_trace(f"{name} is damaged")
        self.names.add(name)
        self._only_snapshots &= snapshots
        if isinstance(store, NodeDisk):
            self._only_newest &= self._is_newest(store)

    def excuses(self, error: str, policy: Policy, *, given_input: bool) -> bool:
        """Return whether the damage excuses a run that stopped with this error.

        Damage excuses nothing if the run could have recovered from it. `given_input`: whether the
        input can be read again from its beginning.
        """
        # Recoverable: from an older snapshot, or from the beginning of the input.
        written = self._registry.written
        can_start_over = given_input and (written is None or not written.base)
        can_recover = self._only_snapshots and (can_start_over or self._only_newest)
        if can_recover and policy.output is Output.FRONTIER:
            return False
        is_named = any(name in error for name in (*self.names, "the state directory"))
        return bool(self.names) and is_named and error.startswith(DAMAGE_ERRORS)

    def _is_newest(self, disk: NodeDisk) -> bool:
        """Return whether the newest part is the damaged one, and the snapshot before it is
        intact."""
        if disk.damaged_part != max(disk.parts):
            return False
        state = self._registry.read()
        committed = [s.number for s in state.snapshots] if state is not None else []
        return len(committed) == 2 and disk.damaged_part > committed[1]


PROGRESS_POLL_S = 0.25
"""Interval between checks of progress, in virtual seconds."""

RECOVERY_S = 5.0
"""Longest time of a recovery, from its cause to the first output after it, in virtual seconds."""

STALL_TIMEOUT_S = STALLED_AFTER_S + RECOVERY_S
"""Virtual seconds without progress after which a run counts as stalled."""

HANDOVER_S = MISSING_AFTER_S + LEADER_TIMEOUT_MIN_S + 2.0
"""Time of one step-down, from the last message of a member to the next leader, in seconds."""


class ProgressChecker(Struct):
    """Checks the progress of a run at intervals, and stops a run that stalls."""

    world: World
    progress: Callable[[], object]
    """Returns a value that changes whenever the run progresses."""
    timeout_s: float = STALL_TIMEOUT_S
    """Virtual seconds without progress after which the run counts as stalled."""
    longest_s: float = 0.0
    """The longest time without progress so far, in virtual seconds."""
    is_stalled: bool = False
    _last_progress: object = None
    _since: float = 0.0

    def begin(self, since: float) -> None:
        """Check from the time `since` on, when all faults are over and all input has arrived."""
        self._since = since
        self.world.timeline.at_time(since, self._check)

    def _check(self) -> None:
        timeline = self.world.timeline
        now, progress = timeline.now, self.progress()
        paused_until = max(host.paused_until for host in self.world.hosts.values())
        if paused_until == inf:  # a process hangs, until it is killed
            paused_until = now + PROGRESS_POLL_S
        if progress != self._last_progress or paused_until > now:
            self._last_progress, self._since = progress, max(now, paused_until)
        self.longest_s = max(self.longest_s, now - self._since)
        if now - self._since > self.timeout_s:
            timeline.is_over = self.is_stalled = True
        timeline.after(PROGRESS_POLL_S, self._check)
