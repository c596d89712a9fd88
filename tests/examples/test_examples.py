"""Examples have the documented outputs: in the reference, on failing nodes, and as commands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from driftline import Flow, run_reference, simulate
from driftline.connectors.sinks.lines import JsonLines
from driftline.deploy.commands.run import run
from driftline.engine.flow.loading import load_flow
from tests.examples.inputs import NAMES, Record, records

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEEDS = 4
COMMAND_MAX_S = 120.0


def load(name: str) -> Flow:
    return load_flow(str(EXAMPLES / f"{name}.py"))


def outputs(name: str, *inputs: Sequence[Record]) -> list[tuple[str, object]]:
    """Return (sink, value) of each output, in label order."""
    flow = load(name)
    return [(flow.sinks[item.sink].name, item.value) for item in run_reference(flow, inputs)]


def driftline(folder: Path, *arguments: str) -> None:
    """Run the command in a folder, and check that it succeeds."""
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


# What each example does --------------------------------------------------------------------------


def visit(user: str, at: int, page: str = "/") -> Record:
    return {"user": user, "at": at, "page": page}


def row(key: str, start: int, end: int, **aggregates: object) -> Record:
    """Return the row of a window; `start` and `end` in seconds."""
    start_text, end_text = (
        f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" for at in (start, end)
    )
    return {"key": key, "start": start_text, "end": end_text, **aggregates}


def test_session_leaves_once_the_watermark_has_passed_its_end() -> None:
    gap, delay = 1800, 900
    found = outputs(
        "sessions",
        [
            visit("ann", 1000, "/a"),
            visit("bob", 1050),
            visit("ann", 1000 + gap, "/b"),  # just in time
            visit("bob", 1050 + gap + 1),  # too late: a session of its own
            visit("ann", 950, "/c"),  # from before: belongs to the session that is open
            visit("cleo", 1050 + gap + delay),  # bob's first session is over
            visit("bob", 1049),  # later than the delay allows
        ],
    )
    assert found == [
        ("sessions", row("bob", 1050, 1050 + gap, visits=1, pages=("/",))),
        ("sessions", row("ann", 950, 1000 + 2 * gap, visits=3, pages=("/a", "/b", "/c"))),
        ("sessions", row("bob", 1050 + gap + 1, 1051 + 2 * gap, visits=1, pages=("/",))),
        ("sessions", row("cleo", 1950 + gap, 1950 + 2 * gap, visits=1, pages=("/",))),
    ]


def test_views_are_counted_per_minute_and_late_ones_set_aside() -> None:
    late: Record = {"user": "ann", "at": "2026-03-01T12:00:59Z", "page": "/"}
    found = outputs(
        "page_views",
        [
            {"user": "ann", "at": "2026-03-01T12:00:05Z", "page": "/"},
            {"user": "ann", "at": "2026-03-01T12:01:09Z", "page": "/a"},
            {"user": "ann", "at": "2026-03-01T12:00:06Z", "page": "/"},  # within the delay
            {"user": "bob", "at": "2026-03-01T12:01:10Z", "page": "/"},
            late,
        ],
    )
    zero, one, two = (f"2026-03-01T12:0{minute}:00Z" for minute in range(3))
    missed = {"event_time": late["at"], "watermark": one, "windows": ((zero, one),)}
    assert found == [
        ("minutes", {"key": "ann", "start": zero, "end": one, "views": 2, "pages": 1}),
        ("late", {"record": late, **missed}),
        ("minutes", {"key": "bob", "start": one, "end": two, "views": 1, "pages": 1}),
        ("minutes", {"key": "ann", "start": one, "end": two, "views": 1, "pages": 1}),
    ]


def test_sensor_that_is_silent_for_five_minutes_raises_one_alert() -> None:
    def reading(sensor: str, at: int) -> Record:
        return {"sensor": sensor, "at": at, "celsius": 21.5}

    found = outputs(
        "silence",
        [
            reading("a", 1000),
            reading("b", 1010),
            reading("a", 990),  # out of order: the alert counts from the latest reading
            reading("b", 1329),
            reading("b", 1330),  # 5 minutes, and the delay, after 1000
            reading("a", 995),  # late: no second alert
            reading("a", 1400),
            reading("b", 1500),  # at the end there is no alert
        ],
    )
    assert found == [("alerts", ("a", 1000)), ("alerts", ("b", 1010))]


def clock(minute: int, second: int = 0) -> str:
    """Return a time on one day."""
    return f"2026-03-01T{12 + minute // 60}:{minute % 60:02}:{second:02}Z"


def test_payments_meet_their_order_within_fifteen_minutes() -> None:
    def order(number: int, minute: int) -> Record:
        return {"order": f"o-{number}", "at": clock(minute), "customer": "ann", "price": 5}

    def payment(number: int, minute: int, amount: int) -> Record:
        return {"order": f"o-{number}", "at": clock(minute), "amount": amount}

    orders = [order(1, 0), order(2, 6), order(3, 30)]
    payments = [payment(2, 1, 60), payment(1, 15, 200), payment(1, 16, 300), payment(9, 50, 1)]
    found = outputs("join", orders, payments)
    assert sorted(found, key=str) == sorted(
        [
            ("paid", {**orders[1], "paid": 60}),
            ("paid", {**orders[0], "paid": 200}),
            ("unmatched", orders[2]),
            ("unmatched", payments[2]),
            ("unmatched", payments[3]),
        ],
        key=str,
    )


def test_best_products_of_the_last_hour_leave_each_minute() -> None:
    def sale(product: str, minute: int, pieces: int) -> Record:
        return {"product": product, "at": clock(minute), "pieces": pieces}

    found = outputs("topk", [sale("tea", 0, 2), sale("rum", 1, 3), sale("tea", 2, 4)])
    best = {dict(row)["until"]: dict(row)["best"] for _, row in found}  # type: ignore[call-overload]
    assert best[clock(1)] == (("tea", 2),)
    assert best[clock(2)] == (("rum", 3), ("tea", 2))
    assert best[clock(3)] == best[clock(60)] == (("tea", 6), ("rum", 3))
    assert best[clock(61)] == (("tea", 4), ("rum", 3))
    assert best[clock(62)] == (("tea", 4),)
    assert len(best) == 62


def test_first_event_of_an_id_passes_and_again_after_a_day() -> None:
    def event(name: str, day: int, hour: int) -> Record:
        at = f"2026-03-{day:02}T{hour:02}:00:00Z"
        return {"id": name, "at": at, "kind": "signup", "user": "ann"}

    events = [
        event("e-1", 1, 12),
        event("e-2", 1, 13),
        event("e-1", 2, 11),
        event("e-1", 2, 12),  # a day later
        event("e-1", 1, 12),  # late, but the first one is not forgotten yet
        event("e-2", 3, 9),
        event("e-1", 3, 11),
    ]
    assert outputs("dedupe", events) == [("first", events[i]) for i in (0, 1, 3, 5)]


def test_order_is_enriched_with_the_price_at_its_time() -> None:
    def product(minute: int, name: str, price: int) -> Record:
        return {"product": "p-1", "at": clock(minute), "name": name, "price": price}

    def order(key: str, minute: int, pieces: int) -> Record:
        return {"product": key, "at": clock(minute), "pieces": pieces}

    orders = [order("p-1", 0, 1), order("p-1", 10, 2), order("p-2", 11, 1), order("p-1", 1, 2)]
    found = outputs("enrichment", [product(1, "tea", 300), product(9, "green tea", 400)], orders)
    expected = [
        ("unknown", orders[0]),  # before the first row
        ("priced", {**orders[3], "name": "tea", "cost": 600}),
        ("priced", {**orders[1], "name": "green tea", "cost": 800}),
        ("unknown", orders[2]),
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_large_payment_soon_after_a_small_one_raises_an_alert() -> None:
    def payment(card: str, at: int, amount: int) -> Record:
        return {"card": card, "at": at, "amount": amount}

    payments = [
        payment("c-1", 1000, 50_000),  # no small one before
        payment("c-1", 1001, 200),
        payment("c-2", 1002, 60_000),  # another card
        payment("c-1", 1003, 49_999),  # not large
        payment("c-1", 1061, 50_000),  # within a minute
        payment("c-1", 1062, 70_000),  # a second too late
        payment("c-1", 1070, 1),
        payment("c-1", 1071, 2),
        payment("c-1", 1071, 80_000),  # after two small ones: one alert
        payment("c-1", 1069, 90_000),  # before the small ones
    ]
    assert outputs("fraud", payments) == [("alerts", payments[4]), ("alerts", payments[8])]


def test_groups_are_the_connected_components_after_each_link() -> None:
    links = records("connected_components", Random(3))[0]
    nodes = {str(link[end]) for link in links for end in ("from", "to")}
    groups = {node: {node} for node in nodes}
    for count in range(0, len(links) + 1, 10):
        for link in links[max(0, count - 10) : count]:
            joined = groups[str(link["from"])] | groups[str(link["to"])]
            groups |= dict.fromkeys(joined, joined)
        found: list[Any] = [value for _, value in outputs("connected_components", links[:count])]
        names = {node: node for node in nodes} | dict(found)
        assert names == {node: min(groups[node]) for node in nodes}


def test_best_bid_in_time_wins_when_its_auction_closes() -> None:
    def auction(name: str, at: int, closes: int) -> Record:
        return {"auction": name, "at": at, "closes": closes, "reserve": 100}

    def bid(auction: str, at: int, bidder: str, price: int) -> Record:
        return {"auction": auction, "at": at, "bidder": bidder, "price": price}

    auctions = [auction("a-1", 1000, 1100), auction("a-2", 1010, 1160), auction("a-3", 1990, 2000)]
    bids = [
        bid("a-1", 999, "ann", 900),  # before the auction opens
        bid("a-1", 1020, "bob", 300),
        bid("a-1", 1010, "ann", 300),  # an equal price, but earlier
        bid("a-2", 1050, "ann", 99),  # less than the reserve
        bid("a-1", 1100, "cleo", 400),  # when the auction closes
        bid("a-1", 1130, "cleo", 500),  # moves the watermark to this time
        bid("a-1", 1090, "bob", 800),  # arrives too late
        bid("a-2", 1159, "bob", 100),
    ]
    found = outputs("auction", auctions, bids)
    assert [value for sink, value in found if sink == "winners"] == [
        {**bids[2], "closes": 1100},
        {**bids[7], "closes": 1160},
    ]
    highest = [bids[0], bids[1], bids[6], bids[7]]
    assert [value for sink, value in found if sink == "minutes"] == [
        row("all", start, start + 60, highest=(best,))
        for start, best in zip((960, 1020, 1080, 1140), highest, strict=True)
    ]


# On nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_outputs_equal_the_reference_when_nodes_crash(name: str) -> None:
    inputs = records(name, Random(1))
    flow = load(name)
    assert {sink for sink, _ in outputs(name, *inputs)} == {sink.name for sink in flow.sinks}
    report = simulate(flow, inputs, seeds=SEEDS)
    assert any(fault.startswith("crash node") for fault in report.faults)


@pytest.mark.parametrize("name", NAMES)
def test_command_of_the_docstring_runs_its_records(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One example runs on nodes, as users start it; the others run in the reference interpreter."""
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / f"{name}.py").read_text()
    shown: list[Record] = [json.loads(row) for row in re.findall(r"^    (\{.*\})", text, re.M)]
    (command,) = re.findall(r"^    driftline (run .*)", text, re.M)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    for file, row in zip(re.findall(r"--input (\S+)", command), shown, strict=True):
        write(tmp_path / file, [row])
    words = shlex.split(command)
    if name == "join":
        driftline(tmp_path, *words)
    else:
        done = CliRunner().invoke(run, [*words[1:], "--reference"])
        assert done.exit_code == 0, done.output
    flow = load(name)
    lines = JsonLines(flow)
    as_read = [[{**row, "id": row.get("id", 1)}] for row in shown]
    expected = [lines.format(item) for item in run_reference(flow, as_read)]
    written = [path.read_text().splitlines() for path in sorted((tmp_path / "out").glob("*.jsonl"))]
    assert [line for some in written for line in some] == expected


def test_every_example_has_tests() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*NAMES, "wordcount"}
