"""A process with little to do keeps to its half of the cores; with much to do it has all."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from pathlib import Path

import pytest
import zmq

from driftline.deploy.runtime.loop.cpu_affinity import (
    BUSY,
    IO_THREAD,
    LOOK_S,
    CpuAffinity,
    cores_here,
)


class Kept:
    """Cores of which it is noted which ones the process was to keep to, and its ZeroMQ threads."""

    def __init__(self, cores: tuple[int, ...], half: int, io_half: int = 0) -> None:
        self.calls: list[Collection[int]] = []
        self.io_calls: list[Collection[int]] = []
        self.cores = CpuAffinity(
            cores, half, io_half, self._keep_to, lambda: self.calls[-1], lambda: self._wanted_s
        )
        self._now, self._wanted_s = 100.0, 7.0

    def _keep_to(self, cores: Collection[int], io_cores: Collection[int]) -> None:
        self.calls.append(cores)
        self.io_calls.append(io_cores)

    def look(self, *, busy: bool) -> None:
        """One look later, with much to do meanwhile, or little."""
        self._now += LOOK_S
        self._wanted_s += LOOK_S * (BUSY + (0.01 if busy else -0.01))
        self.cores.adjust(self._now)


@pytest.mark.parametrize(("half", "mine"), [(0, (0, 1)), (1, (2, 5, 7))])
def test_a_process_that_has_much_to_do_runs_on_all_cores(half: int, mine: tuple[int, ...]) -> None:
    kept = Kept((0, 1, 2, 5, 7), half)
    anywhere = (0, 1, 2, 5, 7)
    for busy in (False, False, False, True, True, False):
        kept.look(busy=busy)
    assert kept.calls == [anywhere, mine, anywhere, mine]
    kept.cores.unpin()
    kept.look(busy=False)
    assert kept.calls[4:] == [anywhere, mine]


@pytest.mark.parametrize("cores", [(), (3,)])
def test_affinity_is_not_set_with_one_core_or_none(cores: tuple[int, ...]) -> None:
    kept = Kept(cores, 1)
    kept.look(busy=False)
    kept.cores.unpin()
    assert not kept.calls


def test_all_threads_are_moved() -> None:
    cores = cores_here()
    if len(cores) < 2:
        pytest.skip("there is one core only")
    halves = {*cores[: len(cores) // 2]}, {*cores[len(cores) // 2 :]}
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    assert thread.native_id is not None
    with zmq.Context() as context, context.socket(zmq.PULL) as here, context.socket(zmq.PUSH) as to:
        to.connect(f"tcp://127.0.0.1:{here.bind_to_random_port('tcp://127.0.0.1')}")
        here.rcvtimeo = 10_000
        to.send(b"")
        here.recv()  # so ZeroMQ's thread runs, and has given itself its name
        mine = CpuAffinity(cores, 1, 0)
        try:
            assert os.sched_getaffinity(thread.native_id) == {*cores}
            mine.adjust(1e9)
            mine.adjust(2e9)
            assert os.sched_getaffinity(thread.native_id) == halves[1]
            assert zeromq_threads()
            assert all(os.sched_getaffinity(each) == halves[0] for each in zeromq_threads())
        finally:
            mine.unpin()
            ended.set()
            thread.join()
    assert cores_here() == cores


def zeromq_threads() -> list[int]:
    """The threads of ZeroMQ in this process that send and receive."""
    return [
        int(task.name)
        for task in Path("/proc/self/task").iterdir()
        if (task / "comm").read_text().startswith(IO_THREAD)
    ]
