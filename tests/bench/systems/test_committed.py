"""What is committed has arrived, once; what lies behind it in a file has not."""

from __future__ import annotations

from pathlib import Path

from driftline.bench.systems.committed import Committed
from driftline.engine.sinks import JsonLinesConsumer
from driftline.engine.wire.bundles import to_blob
from driftline.engine.wire.messages import Bundle
from driftline.index import flow

GROUPS = (0, 63)


def test_outputs_arrive_with_their_commit(tmp_path: Path) -> None:
    committed = Committed(tmp_path, 2, {"x": 0, "y": 1})

    def arrived() -> list[tuple[int, list[object]]]:
        return [(number, list(words)) for number, words, _ in committed.arrivals()]

    assert arrived() == []
    consumer = JsonLinesConsumer(tmp_path, "barrier-1", flow, "bench")
    labels: list[tuple[int, ...]] = [(1, 0, 0), (1, 0, 1), (2, 0, 0)]
    values = [("a", "x", (0,), 1), ("b", "x", (1,), 1), ("a", "y", (0,), 2)]
    blobs = to_blob(labels[:2], [0, 0], values[:2]), to_blob(labels[2:], [0], values[2:])
    consumer.deliver(Bundle("barrier-1", 1, GROUPS, blobs, 2, 0))
    assert committed.news
    assert arrived() == [(0, ["a", "b"]), (1, ["a"])]
    with (tmp_path / "changes-1.jsonl").open("ab") as file:
        file.write(b'{"t": [3, 0, 0], "value": {"word": "torn"')
    assert arrived() == []
    consumer.deliver(Bundle("barrier-1", 2, GROUPS, (to_blob([(3, 0, 0)], [0], values[2:]),), 3, 0))
    consumer.close()
    assert arrived() == [(1, ["a"])]
