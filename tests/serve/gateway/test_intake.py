"""Gateway: records from HTTP and from producers, recent outputs, and fair scheduling of streams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from time import time_ns

import pytest

from driftline.connectors.logs.inputlog import InputLog
from driftline.connectors.logs.received import ReceivedSource
from driftline.deploy.roles.intake import RETRY_AFTER_S
from driftline.deploy.runtime.sockets.intake_socket import IntakeSocket
from driftline.engine.errors import Unavailable
from driftline.engine.sources.source import BadRecord
from driftline.engine.wire.bundles import Item
from driftline.serve.errors import ApiError
from driftline.serve.gateway.intake import Outcome, ServiceIntake
from driftline.serve.gateway.service import RECENT_BYTES_MAX, RECENT_MAX, RecentOutputs
from driftline.serve.gateway.subscriptions import FairScheduler

WINDOW = 64


class IntakeHarness:
    """Intake of a service with a flow that reads one record per turn."""

    def __init__(self, folder: Path) -> None:
        self.log = InputLog(folder / "log", "test")
        source = ReceivedSource(self.log, lambda: time_ns() // 1000)
        self.outcomes: list[tuple[int, Outcome]] = []
        address = f"ipc://{folder}/producers"
        self.intake = ServiceIntake[int](source, address, self.outcomes.extend)
        self.intake.window = WINDOW
        self.read: list[object] = []
        self.disk_error: Unavailable | None = None
        self._records = source.entries(1)

    def turn(self) -> None:
        """Run a turn of the process: first the intake, then the front."""
        self.intake.handle_input()
        self.intake.turn()
        for job in self.intake.jobs:
            if self.disk_error is None:
                self.log.execute_job(job)
            self.intake.on_job_done(job, self.disk_error)
        self.intake.jobs.clear()
        record = next(self._records, None)
        if record is not None:
            assert not isinstance(record, BadRecord)
            self.read.append(record[1])

    def close(self) -> None:
        self.intake.close(linger_ms=0)
        self.log.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[IntakeHarness]:
    service = IntakeHarness(tmp_path)
    yield service
    service.close()


def test_busy_producers_leave_half_of_the_window_to_the_gateway(
    service: IntakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_next(intake: IntakeSocket) -> None:
        intake.source.receive("p", intake.source.last_accepted("p") + 1, "of a producer")

    monkeypatch.setattr(IntakeSocket, "has_work", IntakeSocket.has_room)
    monkeypatch.setattr(IntakeSocket, "_take_next", take_next)
    for _ in range(2 * WINDOW):
        service.turn()
    assert set(service.read) == {"of a producer"}
    count = 10
    service.intake.submit([(number, "of the gateway") for number in range(count)])
    for _ in range(WINDOW + 3 * count):
        service.turn()
    assert [token for token, _ in service.outcomes] == list(range(count))
    assert service.read.count("of the gateway") == count
    assert service.read.index("of the gateway") < 3 * WINDOW + 3


def test_single_records_alternate_with_those_of_a_bulk(service: IntakeHarness) -> None:
    bulk, single = [f"bulk {n}" for n in range(3 * WINDOW)], [f"single {n}" for n in range(3)]
    service.intake.submit([(0, record) for record in bulk], bulk=True)
    service.turn()
    service.intake.submit([(0, record) for record in single])
    while len(service.outcomes) < len(bulk) + len(single):
        service.turn()
    for _ in range(WINDOW):
        service.turn()
    positions = [service.read.index(record) for record in single]
    assert positions[0] <= WINDOW + 2, "the record waited for the bulk"
    assert [b - a for a, b in pairwise(positions)] == [2, 2]
    assert [each for each in service.read if each in bulk] == bulk


def test_full_disk_rejects_waiting_records_and_names_the_directory(service: IntakeHarness) -> None:
    service.disk_error = Unavailable("input log /srv/workspace: Permission denied")
    service.intake.submit([(1, "taken")])
    service.turn()
    service.turn()
    service.disk_error = Unavailable("input log /srv/index/input-0: No space left on device")
    service.intake.tick(service.intake.now + RETRY_AFTER_S)
    service.turn()
    service.intake.submit([(2, "later")], bulk=True)
    service.turn()
    codes = {token: each.code for token, each in service.outcomes if isinstance(each, ApiError)}
    assert codes == {1: "unavailable", 2: "full"}
    (_, refused) = service.outcomes[-1]
    assert "/srv/index/input-0" in str(refused)


def test_recent_outputs_hold_all_or_none_of_a_time() -> None:
    for size, kept in ((1, RECENT_MAX), (RECENT_BYTES_MAX // 10, 10)):
        recent = RecentOutputs(0)
        value = "key", "a" * (size - 3)
        times = [2 * n for n in range(3 * kept // 2)]
        for time in times:
            recent.add([Item((time, n), 0, value) for n in (0, 1)])
        found = [time for time in times if recent.at(time) is not None]
        assert found == times[-(kept // 2) :]
        assert all(len(recent.at(time) or ()) == 2 for time in found)
        assert recent.at(times[-1] - 1) == []


PASSES = 20


def test_scheduler_limits_streams_to_one_piece_per_loop_pass() -> None:
    async def drive() -> tuple[int, set[int]]:
        scheduler = FairScheduler()
        done = [0] * 100

        async def stream(number: int) -> None:
            while True:
                await scheduler.wait_for_turn()
                done[number] += 1

        streams = [asyncio.create_task(stream(number)) for number in range(len(done))]
        await asyncio.sleep(0)
        for _ in range(PASSES):
            await asyncio.sleep(0)
        early_count = sum(done)
        streams.pop().cancel()  # a stream that waits for its turn is cancelled
        while min(done[:-1]) < 2:
            await asyncio.sleep(0)
        for each in streams:
            each.cancel()
        return early_count, set(done[:-1])

    early_count, done = asyncio.run(drive())
    assert 0 < early_count <= PASSES
    assert done <= {2, 3}, "the streams do not take turns"
