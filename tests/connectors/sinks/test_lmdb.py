"""LMDB: items and t_last in one transaction, read back in label order."""

from collections.abc import Callable
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.connectors.sinks import MemoryConsumer
from driftline.connectors.sinks import lmdb as module
from driftline.connectors.sinks.lmdb import LmdbConsumer, _decode_key, item_key, read_items
from driftline.engine.errors import Unavailable
from driftline.engine.wire.bundles import Item, to_blob
from driftline.engine.wire.messages import Bundle
from tests.connectors.sinks.bundles import BARRIER, FLOW, GROUPS, PowerLoss, in_lmdb, items, stream

labels = st.lists(st.integers(0, 300) | st.integers(0, 2**64 - 1), max_size=6).map(tuple)


@given(labels, labels, st.integers(-1, 5), st.integers(-1, 5))
def test_keys_sort_like_labels(
    a: tuple[int, ...], b: tuple[int, ...], sink_a: int, sink_b: int
) -> None:
    key_a, key_b = item_key(a, sink_a), item_key(b, sink_b)
    assert (key_a < key_b) == ((a, sink_a) < (b, sink_b))
    assert _decode_key(key_a + b"\1") == (a, sink_a)


def test_all_barriers_are_read_in_label_order(tmp_path: Path) -> None:
    for number in range(3):
        consumer = in_lmdb(tmp_path, f"barrier-{number}")
        for bundle in stream(12, f"barrier-{number}")[number::3]:
            consumer.deliver(bundle)
        consumer.close()
    assert list(read_items(tmp_path)) == items(stream(12))


def test_reading_a_missing_or_open_directory_raises_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="holds no outputs"):
        list(read_items(tmp_path))
    consumer = in_lmdb(tmp_path)
    with pytest.raises(Unavailable, match="already open"):
        list(read_items(tmp_path))
    consumer.close()
    assert list(read_items(tmp_path)) == []


def test_address_space_grows(tmp_path: Path) -> None:
    consumer = LmdbConsumer(tmp_path, BARRIER, FLOW, "me", map_size=1 << 16)
    for number in range(20):
        blob = to_blob([(number, 0)], [0], ["x" * 50_000])
        consumer.deliver(Bundle(BARRIER, 1, GROUPS, (blob,), number, 0))
    consumer.close()
    assert [item.label[0] for item in read_items(tmp_path)] == list(range(20))


def failing_after(calls: int) -> Callable[[int], bytes]:
    """Return a function that encodes key numbers, and loses power after `calls` calls.

    The calls are first outside of the transaction, then inside.
    """
    number = module._encode_number
    left = repeat(number, calls)

    def write(value: int) -> bytes:
        for works in left:
            return works(value)
        raise PowerLoss

    return write


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 80), st.booleans()), max_size=8))
def test_items_match_the_model_after_any_failure(faults: list[tuple[int, bool]]) -> None:
    bundles = stream(8)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "out"
        twin, consumer = MemoryConsumer(), in_lmdb(path)
        while twin.last(BARRIER, GROUPS).t_last < bundles[-1].t_last:
            calls, reopen = faults.pop() if faults else (10**6, True)
            assert consumer.last(BARRIER, GROUPS) == twin.last(BARRIER, GROUPS)
            with pytest.MonkeyPatch.context() as patch, suppress(PowerLoss):
                patch.setattr(module, "_encode_number", failing_after(calls))
                for bundle in bundles:
                    consumer.deliver(bundle)
                    twin.deliver(bundle)
            if reopen:
                consumer.close()
                found: list[Item] = list(read_items(path))
                assert found == twin.items
                consumer = in_lmdb(path)
        consumer.close()
        assert list(read_items(path)) == items(bundles)
