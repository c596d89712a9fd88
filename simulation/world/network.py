"""The simulated network: channels that delay, lose and repeat messages.

A channel leads from a process to a role. It is FIFO, and other channels may overtake it. During a
cut, all messages on one channel, or from one process, are lost. During a partition, which is
one-way, all messages from one host to another are lost. When a process crashes, either its last
messages are lost, or its messages in flight arrive after its successor has started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf
from random import Random

from msgspec import Struct, field

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import unpack
from driftline.engine.wire.messages import decode
from driftline.simulation.world.timeline import Faults, Partition, Timeline


class Network(Struct):
    """All messages in flight, and the state of the channels."""

    timeline: Timeline
    rng: Random
    faults: Faults
    counted: Counter[str]
    _arrivals: dict[tuple[str, str], float] = field(default_factory=dict)
    """(process, receiver) -> the arrival time of the channel's last message."""
    _cut_until: dict[tuple[str, str], float] = field(default_factory=dict)
    """(process, receiver) -> the end of the cut; receiver "": all channels of the process."""
    _lost_after: dict[str, float] = field(default_factory=dict)
    """Crashed process -> the time after which its messages are lost."""
    _late_messages: dict[str, float] = field(default_factory=dict)
    """Crashed process -> the additional delay of its messages, in seconds."""
    _partitions: set[tuple[str, str]] = field(default_factory=set)
    """(host of the sender, host of the receiver)"""

    def schedule_partition(self, partition: Partition) -> None:
        """Schedule a partition."""
        hosts = partition.sender, partition.receiver
        kinds = " to ".join(host.partition("-")[0] for host in hosts)

        def begin() -> None:
            self._partitions.add(hosts)
            self.counted[f"one-way partition {kinds}"] += 1
            self.timeline.add_trace(
                f"all messages from {partition.sender} to {partition.receiver} are lost from now on"
            )

        self.timeline.at_time(partition.at_s, begin)
        if partition.until_s < inf:
            self.timeline.at_time(partition.until_s, lambda: self._partitions.discard(hosts))

    def is_lost(self, sender: str, receiver: str) -> bool:
        """Return whether all messages from one host to another are lost now."""
        return (sender, receiver) in self._partitions

    def send(self, process: str, to: str, arrive: Callable[[], None]) -> None:
        """Send a message to a role. Each arrival calls `arrive`: never, once or twice."""
        timeline, faults = self.timeline, self.faults
        channel = (process, to)
        all_channels = (process, "")
        if timeline.draw_fault(faults.cut, "cut connection"):
            cut = channel if self.rng.random() < 0.5 else all_channels
            self._cut_until[cut] = timeline.now + self.rng.expovariate(100.0)
        if timeline.now < max(self._cut_until.get(c, 0.0) for c in (channel, all_channels)):
            self.counted["lost message"] += 1
            return
        delay_s = self.rng.expovariate(1 / faults.delay_s)
        if self.rng.random() < faults.slow:
            delay_s *= 20
        # At the earliest with the last arrival on the channel, which is FIFO.
        arrival = max(timeline.now + delay_s, self._arrivals.get(channel, 0.0))
        self._arrivals[channel] = arrival
        event = partial(self._arrive, process, arrive)
        timeline.at_time(arrival, event)
        if timeline.draw_fault(faults.repeat, "repeated message"):
            timeline.at_time(arrival, event)

    def handle_crash(self, process: str, restart_delay_s: float) -> None:
        """Handle the crash of a process; its successor starts in `restart_delay_s` seconds."""
        now, rng = self.timeline.now, self.rng
        if self.timeline.draw_fault(self.faults.late_message, "message after its sender's death"):
            self._late_messages[process] = restart_delay_s + rng.expovariate(50.0)
        else:  # its last messages never leave its buffers
            self._lost_after[process] = now + rng.random() * self.faults.delay_s

    def _arrive(self, process: str, arrive: Callable[[], None]) -> None:
        if self.timeline.now > self._lost_after.get(process, inf):
            self.counted["lost message"] += 1
        elif process in self._late_messages:
            self.timeline.after(self._late_messages[process], arrive)
        else:
            arrive()


def describe_message(data: bytes) -> str:
    """Return the text of an encoded message between roles, or between an intake and a producer."""
    try:
        header, message = decode(data)
    except MalformedMessage:
        return str(unpack(data))
    return f"[{header.incarnation}.{header.sequence}] {message}"
