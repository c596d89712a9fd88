"""Live sources: from Python, by address, and from another package; some runs are killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from driftline import DriftlineError, Flow, FlowError, run
from driftline.api import inputs
from driftline.connectors import LiveSource, Record, guarded, open_source
from driftline.connectors.logs.inputlog import InputLog
from driftline.connectors.logs.received import PolledSource
from driftline.deploy.runtime.receivers import PolledReceiver
from driftline.engine.errors import Unavailable
from tests.connectors.shop import ConnectorRun, install_package

SHOP = '''
import json
import time

from driftline import Flow, ValueState
from driftline.connectors import LiveSource, Record


class Orders(LiveSource):
    """The lines of a file that grows, up to the line `end`. The offset is the place of a line."""

    name = "orders"

    def start(self, offsets):
        self.file = open("orders.jsonl", "rb")
        if "file" in offsets:
            self.file.seek(offsets["file"])
            self.file.readline()

    def poll(self, timeout_s):
        at = self.file.tell()
        line = self.file.readline()
        if not line.endswith(b"\\n"):
            self.file.seek(at)
            time.sleep(timeout_s)
            return []
        return None if line == b"end\\n" else [Record("file", at, json.loads(line))]

    def acknowledge(self, offsets):
        with open("stored", "a") as file:
            file.write(f"{offsets['file']}\\n")


def number(order, seen):
    seen.set(seen.get(0) + 1)
    return order["user"], seen.get(), order["item"]


flow = Flow("shop")
flow.source("orders").key_by("user").scan(number, ValueState("seen")).sink("numbered")


def open_source(address):
    return Orders()
'''

ORDERS: list[dict[str, object]] = [
    {"user": "Ann" if i % 3 else "Bob", "item": i} for i in range(60)
]


class LiveShop(ConnectorRun):
    """Flow that reads a growing file."""

    def __init__(self, folder: Path, address: str) -> None:
        super().__init__(folder, SHOP, "--input", address, "--output", "out")
        self.orders = folder / "orders.jsonl"
        self.orders.touch()

    def append(self, orders: list[dict[str, object]]) -> None:
        with self.orders.open("a") as file:
            file.writelines(f"{json.dumps(order)}\n" for order in orders)

    def outputs(self) -> list[object]:
        found = [
            json.loads(line)
            for path in (self.folder / "out").glob("numbered-*.jsonl")
            for line in path.read_text().splitlines()
        ]
        return [line["value"] for line in sorted(found, key=lambda line: line["t"])]

    def stored(self) -> list[int]:
        return [int(line) for line in (self.folder / "stored").read_text().split()]


def numbered(orders: list[dict[str, object]]) -> list[object]:
    counts: dict[object, int] = {}
    outputs: list[object] = []
    for order in orders:
        counts[order["user"]] = counts.get(order["user"], 0) + 1
        outputs.append([order["user"], counts[order["user"]], order["item"]])
    return outputs


@pytest.mark.slow
def test_killed_run_of_a_live_source_delivers_each_record_once(tmp_path: Path) -> None:
    install_package(tmp_path, SHOP)
    shop = LiveShop(tmp_path, "shop://main/orders")
    shop.append(ORDERS[:20])
    for until in (20, 40):
        command = shop.start()
        shop.append(ORDERS[until : until + 10])
        shop.until(lambda: len(shop.outputs()) >= until + 5)  # noqa: B023
        command.send_signal(signal.SIGKILL)
        command.wait()
        shop.append(ORDERS[until + 10 : until + 20])
    with shop.orders.open("a") as file:
        file.write("end\n")
    shop.finish()
    assert shop.outputs() == numbered(ORDERS)
    last = len("".join(f"{json.dumps(order)}\n" for order in ORDERS[:-1]))
    assert max(shop.stored()) == last, "the last record was acknowledged"


class CountingSource(LiveSource):
    name = "counter"

    def __init__(self, count: int) -> None:
        self.count = count
        self.acknowledged: list[int] = []

    def start(self, offsets: object) -> None:
        self.next = 0

    def poll(self, timeout_s: float) -> list[Record] | None:
        if self.next == self.count:
            return None
        self.next += 1
        return [Record("numbers", self.next - 1, self.next)]

    def acknowledge(self, offsets: object) -> None:
        assert isinstance(offsets, dict)
        self.acknowledged.append(offsets["numbers"])


class SourceWithFailingAcknowledgement(CountingSource):
    """Source whose first acknowledgement fails."""

    was_asked = False

    def acknowledge(self, offsets: object) -> None:
        if not self.was_asked:
            self.was_asked = True
            raise Unavailable("busy")
        super().acknowledge(offsets)


class FlakySource(LiveSource):
    """Source that is sometimes unreachable, and repeats records."""

    name = "flaky"

    def __init__(self, *polls: object) -> None:
        self.polls = list(polls)

    def start(self, offsets: object) -> None:
        """Nothing to do."""

    def poll(self, timeout_s: float) -> Sequence[Record] | None:
        found = self.polls.pop(0) if self.polls else None
        if isinstance(found, Exception):
            raise found
        return cast(Sequence[Record] | None, found)


def doubled() -> Flow:
    flow = Flow("double")
    flow.source("numbers").map(lambda number: 2 * number).sink()
    return flow


def test_run_in_python_polls_again_and_recognises_repeated_records(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inputs, "SOURCE_RETRY_S", 0.01)
    first, second = [Record("a", 0, 1), Record("a", 1, 2)], [Record("a", 1, 2), Record("a", 5, 3)]
    source = FlakySource(first, Unavailable("away"), second, Unavailable("away"))
    assert [item.value for item in run(doubled(), [source])] == [2, 4, 6]
    assert "returned records again, which are dropped: offset 1 of partition 'a'" in caplog.text


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (7, r"'flaky': poll\(\) returned 7; give a list of Record"),
        ([("a", 0)], r"poll\(\) returned \[\('a', 0\)\]; give"),
        (KeyError("k"), "the source 'flaky' raised KeyError: 'k'"),
        ([Record("\ud800", 0, 1)], "the partition is not a text"),
        (
            [Record("a", 5, 1), Record("b", 3, 2), Record("a", 5, 3)],
            "offset 5 .*'a' after offset 5",
        ),
    ],
)
def test_fault_of_a_live_source_is_named(found: object, problem: str) -> None:
    with pytest.raises(DriftlineError, match=problem):
        run(doubled(), [FlakySource(found)], [])


def test_last_acknowledgement_is_repeated_until_it_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guarded, "ACKNOWLEDGEMENT_RETRY_S", 0.01)
    source = SourceWithFailingAcknowledgement(3)
    assert [item.value for item in run(doubled(), [source])] == [2, 4, 6]
    assert source.acknowledged == [2]


def test_records_that_an_earlier_call_stored_are_acknowledged(tmp_path: Path) -> None:
    """The earlier call may have been killed before it acknowledged them."""
    with closing(InputLog(tmp_path / "log", "counter")) as log:
        source = PolledSource(log, lambda: 1000, "counter")
        source.take("numbers", 7, "seven")
        group = source.next_group()
        assert group is not None
        log.execute_job(group)
        source.mark_written(group)
        live = CountingSource(0)
        receiver = PolledReceiver(PolledSource(log, lambda: 2000, "counter"), live, name="poller")
        receiver.begin()
        receiver.close()
    assert live.acknowledged == [7]


def test_repeated_records_are_recognised_by_their_offsets(tmp_path: Path) -> None:
    log = InputLog(tmp_path / "log", "orders")
    source = PolledSource(log, lambda: 1000, "orders")
    taken = [source.take("a", offset, offset) for offset in (0, 5, 5, 3, 6)]
    assert taken == [True, True, False, False, True]
    group = source.next_group()
    assert group is not None
    log.execute_job(group)
    source.mark_written(group)
    assert source.offsets() == {"a": 6}
    later = PolledSource(log, lambda: 2000, "orders")
    assert [later.take("a", offset, offset) for offset in (5, 6, 7)] == [False, False, True]


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("mqtt://broker/orders", "there is no connector for 'mqtt', only for .*python"),
        ("python:nowhere.py:Orders", "nowhere.py: there is no such file"),
        ("python:json:nothing", "json has no 'nothing'"),
        ("python:json:JSONEncoder", "JSONEncoder, not a source"),
    ],
)
def test_wrong_address_is_rejected(address: str, problem: str) -> None:
    with pytest.raises(FlowError, match=problem):
        open_source(address)
