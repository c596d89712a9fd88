"""The examples give what they say, in the reference, on nodes that fail, and as commands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from driftline import Flow, run_reference, simulate
from driftline.connectors.sinks.lines import JsonLines
from driftline.engine.flow.loading import load_flow
from tests.examples.inputs import NAMES, Record, records

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEEDS = 15
COMMAND_MAX_S = 120.0


def load(name: str) -> Flow:
    return load_flow(str(EXAMPLES / f"{name}.py"))


def outputs(name: str, *inputs: Sequence[Record]) -> list[tuple[str, object]]:
    """(sink, value) of each output, in label order."""
    flow = load(name)
    return [(flow.sinks[item.sink].name, item.value) for item in run_reference(flow, inputs)]


def driftline(folder: Path, *arguments: str) -> None:
    """Run the command in a folder; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "driftline", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=COMMAND_MAX_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def write(path: Path, rows: Sequence[Record]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


# What each gives --------------------------------------------------------------------------------


def visit(user: str, at: int) -> Record:
    return {"user": user, "at": at, "page": "/"}


def test_a_session_leaves_when_a_visit_comes_after_the_gap() -> None:
    gap = 1800
    found = outputs(
        "sessions",
        [
            visit("ann", 100),
            visit("bob", 150),
            visit("ann", 100 + gap),  # just in time
            visit("bob", 150 + gap + 1),  # too late: bob's first session is over
            visit("ann", 50),  # from before: belongs to the session that is open
            visit("ann", 100 + 3 * gap),
            visit("ann", 100 + 3 * gap + 7),
            visit("ann", 100 + 9 * gap),
        ],
    )
    assert found == [
        ("sessions", ("bob", 150, 150, 1)),
        ("sessions", ("ann", 50, 100 + gap, 3)),
        ("sessions", ("ann", 100 + 3 * gap, 100 + 3 * gap + 7, 2)),
    ]


def test_payments_meet_their_order_whichever_comes_first() -> None:
    found = outputs(
        "join",
        [
            {"order": "o-1", "customer": "ann", "price": 500},
            {"order": "o-2", "customer": "bob", "price": 100},
            {"order": "o-3", "customer": "cleo", "price": 100},
        ],
        [
            {"order": "o-2", "amount": 60},  # before its order
            {"order": "o-1", "amount": 200},
            {"order": "o-1", "amount": 300},
            {"order": "o-2", "amount": 40},
            {"order": "o-9", "amount": 1},  # of no order
        ],
    )
    assert found == [
        ("paid", ("o-2", "bob", 60)),
        ("paid", ("o-1", "ann", 200)),
        ("paid", ("o-1", "ann", 300)),
        ("paid", ("o-2", "bob", 40)),
    ]


def test_top_three_are_emitted_when_one_of_them_sells() -> None:
    sales = [("tea", 2), ("rum", 3), ("ale", 1), ("gin", 1), ("gin", 1), ("gin", 9)]
    found = outputs("topk", [{"product": product, "pieces": pieces} for product, pieces in sales])
    assert found == [
        ("best", (("tea", 2),)),
        ("best", (("rum", 3), ("tea", 2))),
        ("best", (("rum", 3), ("tea", 2), ("ale", 1))),
        # gin sells one, too, but ale comes before it
        ("best", (("rum", 3), ("gin", 2), ("tea", 2))),
        ("best", (("gin", 11), ("rum", 3), ("tea", 2))),
    ]


def test_only_the_first_event_of_an_id_passes() -> None:
    events: list[Record] = [
        {"id": "e-1", "kind": "signup"},
        {"id": "e-2", "kind": "login"},
        {"id": "e-1", "kind": "signup"},
        {"id": 1, "kind": "other"},
        {"id": "e-2", "kind": "logout"},
    ]
    assert outputs("dedupe", events) == [("first", events[i]) for i in (0, 1, 3)]


def test_order_is_enriched_with_the_current_table_row() -> None:
    def product(name: str, price: int) -> Record:
        return {"kind": "product", "product": "p-1", "name": name, "price": price}

    def order(key: str, pieces: int) -> Record:
        return {"kind": "order", "product": key, "pieces": pieces}

    found = outputs(
        "enrichment",
        [product("tea", 300), product("tea", 310), product("green tea", 400)],
        [order("p-1", 2), order("p-1", 2), order("p-2", 1), order("p-1", 1)],
    )
    assert found == [
        ("priced", ("p-1", "tea", 600)),
        ("priced", ("p-1", "tea", 620)),
        ("unknown", "p-2"),
        ("priced", ("p-1", "green tea", 400)),
    ]


def test_large_payment_soon_after_a_small_one_raises_an_alert() -> None:
    def payment(card: str, at: int, amount: int) -> Record:
        return {"card": card, "at": at, "amount": amount}

    found = outputs(
        "fraud",
        [
            payment("c-1", 1000, 50_000),  # no small one before
            payment("c-1", 1001, 200),
            payment("c-2", 1002, 60_000),  # another card
            payment("c-1", 1003, 49_999),  # not large
            payment("c-1", 1061, 50_000),  # within a minute
            payment("c-1", 1062, 70_000),  # a second too late
            payment("c-1", 1070, 1),
            payment("c-1", 1070, 80_000),
            payment("c-1", 1060, 90_000),  # was before the small one
        ],
    )
    assert found == [("alerts", ("c-1", 50_000, 1)), ("alerts", ("c-1", 80_000, 2))]


# On nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_outputs_equal_the_reference_when_nodes_crash(name: str) -> None:
    inputs = records(name, Random(1))
    flow = load(name)
    assert {sink for sink, _ in outputs(name, *inputs)} == {sink.name for sink in flow.sinks}
    report = simulate(flow, inputs, seeds=SEEDS)
    assert any(fault.startswith("crash node") for fault in report.faults)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_in_the_docstring_runs_the_records_in_the_docstring(
    name: str, tmp_path: Path
) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    shown: list[Record] = [json.loads(row) for row in re.findall(r"^    (\{.*\})", text, re.M)]
    (command,) = re.findall(r"^    driftline (run .*)", text, re.M)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    for file, row in zip(re.findall(r"--input (\S+)", command), shown, strict=True):
        write(tmp_path / file, [row])
    driftline(tmp_path, *shlex.split(command))
    flow = load(name)
    lines = JsonLines(flow)
    expected = [lines.format(item) for item in run_reference(flow, [[row] for row in shown])]
    written = [path.read_text().splitlines() for path in sorted((tmp_path / "out").glob("*.jsonl"))]
    assert [line for some in written for line in some] == expected


def test_every_example_has_tests() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*NAMES, "wordcount"}
