"""The sink of the documentation, by address: from the command and from Python, with kills."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from driftline import Flow, FlowError, run, run_reference
from driftline.connectors import NO_BUNDLE, Bundle, Consumer, LastStored, SinkContext, open_sink
from driftline.connectors.outputs import count_delivered, resolve_checked_output
from tests.connectors.shop import ConnectorRun, install_package

DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "reference" / "sinks.md"

SINK = next(
    block
    for block in re.findall(r"```python\n(.*?)```", DOCUMENTED.read_text(), re.DOTALL)
    if "class SqliteConsumer" in block
)
"""The module in the documentation."""

FLOW = """
import time

from driftline import Flow, ValueState


def number(order, seen):
    time.sleep(0.002)
    seen.set(seen.get(0) + 1)
    return order["user"], seen.get(), order["item"]


flow = Flow("shop")
flow.source("orders").key_by("user").scan(number, ValueState("seen")).sink("numbered")
"""

ORDERS = [{"user": f"user-{i % 7}", "item": i} for i in range(160)]


class SinkShop(ConnectorRun):
    """Flow whose outputs go to the sink of the documentation."""

    def __init__(self, folder: Path, output: str) -> None:
        words = ["--input", "orders.jsonl", "--output", output, "--state", "state"]
        super().__init__(folder, FLOW, *words, "--nodes", "2", "--snapshot-interval-ms", "50")
        (folder / "shop_sink.py").write_text(SINK)
        (folder / "orders.jsonl").write_text("".join(f"{json.dumps(o)}\n" for o in ORDERS))

    def outputs(self) -> list[tuple[object, ...]]:
        """Return the rows of the database in label order; empty if it does not exist yet."""
        database = self.folder / "outputs.db"
        if not database.exists():
            return []
        with sqlite3.connect(database, timeout=60) as connection:
            try:
                rows = connection.execute("SELECT label, sink, value FROM outputs").fetchall()
            except sqlite3.OperationalError:  # the table does not exist yet
                return []
        found = [(tuple(json.loads(a)), b, json.loads(c)) for a, b, c in rows]
        return sorted(found)


def expected() -> list[tuple[object, ...]]:
    space: dict[str, object] = {}
    exec(FLOW, space)
    flow = space["flow"]
    assert isinstance(flow, Flow)
    items = run_reference(flow, [ORDERS])
    return [(item.label, item.sink, list(item.value)) for item in items]  # type: ignore[call-overload]


@pytest.mark.slow
def test_killed_run_delivers_each_output_once(tmp_path: Path) -> None:
    opening = "\n\ndef open_sink(address, context):\n    return SqliteConsumer('outputs.db')\n"
    install_package(tmp_path, SINK + opening)
    shop = SinkShop(tmp_path, "shop://main/outputs")
    for count in (20, 60):
        command = shop.start("--kill-every", "2")
        shop.until(lambda: len(shop.outputs()) >= count)  # noqa: B023
        command.send_signal(signal.SIGKILL)
        command.wait()
    log = shop.finish()
    assert shop.outputs() == expected(), log
    assert count_delivered(tmp_path / "state" / "outputs") == (len(ORDERS), 0)
    verified = subprocess.run(
        [sys.executable, "-m", "driftline", "verify", "state"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert verified.returncode == 0, verified
    assert "complete" in verified.stdout


@pytest.mark.slow
def test_fresh_run_appends_outputs_and_sink_that_lost_some_is_rejected(tmp_path: Path) -> None:
    shop = SinkShop(tmp_path, "python:shop_sink.py:outputs")
    shop.finish()
    once = shop.outputs()
    assert once == expected()
    assert "--fresh removes no outputs from python:shop_sink.py:outputs" in shop.finish("--fresh")
    assert shop.outputs() == sorted(once + once)
    (tmp_path / "another.py").write_text(SINK)
    assert shop.start("--output", "python:another.py:outputs").wait(timeout=60) == 1
    assert "go to python:shop_sink.py:outputs, not to python:another.py:outputs" in shop.log()
    (tmp_path / "outputs.db").unlink()
    with (tmp_path / "orders.jsonl").open("a") as file:
        file.write('{"user": "user-1", "item": 160}\n')
    assert shop.start().wait(timeout=60) == 1
    log = shop.log()
    assert "python:shop_sink.py:outputs has lost outputs of barrier-" in log
    assert "Traceback" not in log


def test_python_run_accepts_an_address_or_a_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = SinkShop(tmp_path, "")
    monkeypatch.chdir(tmp_path)
    wanted = expected()
    sink = "python:shop_sink.py:outputs"
    for _ in range(2):  # the second call finds all outputs stored
        summary = run("shop.py", ["orders.jsonl"], sink, nodes=2, state="state")
        assert (summary.outputs, summary.processes) == (len(ORDERS), True)
        assert shop.outputs() == wanted
    with pytest.raises(FlowError, match="give --state DIR"):
        run("shop.py", ["orders.jsonl"], sink)
    (tmp_path / "outputs.db").unlink()
    flow = Flow("here")
    flow.source("orders").map(lambda order: [order["user"], order["item"]]).sink()
    consumer = open_sink(sink, SinkContext(flow, "barrier-0"))
    assert isinstance(consumer, Consumer)
    summary = run(flow, [ORDERS], consumer)
    assert (summary.outputs, summary.processes) == (len(ORDERS), False)
    assert [value for _, _, value in shop.outputs()] == [[o["user"], o["item"]] for o in ORDERS]


class BrokenSink:
    """Sink with a fault; `answer` is what its `last` returns."""

    def __init__(self, answer: object = NO_BUNDLE) -> None:
        self.answer = answer

    def deliver(self, bundle: Bundle) -> None:
        raise KeyError("no such table")

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        return cast(LastStored, self.answer)

    def close(self) -> None:
        """Nothing to do."""


def test_error_of_a_sink_ends_the_run_with_its_name() -> None:
    flow = Flow("broken")
    flow.source("numbers").sink()
    with pytest.raises(FlowError, match="the sink BrokenSink raised KeyError: 'no such table'"):
        run(flow, [[1, 2]], BrokenSink())
    for answer in (None, (30, 1, ()), LastStored(3.0, 1, ()), LastStored(3, 1, ("text",))):  # type: ignore[arg-type]
        text = r"the sink BrokenSink raised TypeError: last\(\) returned"
        with pytest.raises(FlowError, match=text):
            run(flow, [[1, 2]], BrokenSink(answer))


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("mqtt://broker/orders", "there is no connector for 'mqtt', only for jsonl, lmdb, python"),
        ("python:json:JSONEncoder", "JSONEncoder, not a sink: give it the methods of Consumer"),
        ("python:json:dump", "takes 1 at most, but this one needs obj, fp"),
    ],
)
def test_wrong_address_is_rejected(address: str, problem: str) -> None:
    flow = Flow("f")
    flow.source("a").sink()
    with pytest.raises(FlowError, match=problem):
        open_sink(address, SinkContext(flow, "barrier-0"))


def test_mistyped_output_is_rejected(tmp_path: Path) -> None:
    for output in ("pyton:shop.py:outputs", "PYTHON:shop.py:outputs", "python:shop.py:outputs"):
        with pytest.raises(FlowError, match=r"no connector for|shop\.py: there is no such file"):
            resolve_checked_output(output, tmp_path)
    assert resolve_checked_output("./odd:name", None).directory == Path("odd:name")
