from __future__ import annotations

import pytest

from driftline.engine.wire.codec import RECORD_BYTES_MAX, RECORD_DEPTH_MAX, why_refused


def nested(levels: int, kind: str) -> object:
    value: object = "innermost"
    for _ in range(levels):
        value = {"dict": {"a": value}, "list": [value], "tuple": (value,)}[kind]
    return value


@pytest.mark.parametrize("kind", ["dict", "list", "tuple"])
def test_a_record_is_refused_from_one_level_too_many(kind: str) -> None:
    assert not why_refused(nested(RECORD_DEPTH_MAX, kind), 1)
    assert f"more than {RECORD_DEPTH_MAX} deep" in why_refused(
        nested(RECORD_DEPTH_MAX + 1, kind), 1
    )


def test_a_deep_key_counts_too() -> None:
    assert why_refused({nested(RECORD_DEPTH_MAX, "tuple"): 1}, 1)


def test_a_record_is_refused_from_one_byte_too_many() -> None:
    assert not why_refused("", RECORD_BYTES_MAX)
    assert str(RECORD_BYTES_MAX) in why_refused("", RECORD_BYTES_MAX + 1)


def test_only_a_record_of_a_producer_may_have_no_sequences_as_keys() -> None:
    record = {"pairs": [{(1, 2): 3}]}
    assert not why_refused(record, 1)
    assert "keys that are sequences" in why_refused(record, 1, of_producer=True)
    assert not why_refused({1: 2, 2.5: 3, b"4": 5, None: 6}, 1, of_producer=True)
