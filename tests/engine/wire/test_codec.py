"""Codec: values of every type survive a round trip; bytes that were not encoded are rejected."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.wire.codec import (
    PLAIN,
    RECORD_BYTES_MAX,
    RECORD_DEPTH_MAX,
    decode_rows,
    encode_rows,
    pack,
    pack_rows,
    round_trip,
    unpack,
    unpack_rows,
    why_invalid_record,
)
from tests.engine.state.states import as_tuples, encodable, exact, scalars


def through_the_wire(rows: Sequence[object]) -> list[object]:
    return decode_rows(unpack(pack(encode_rows(rows))))


@given(encodable)
def test_value_round_trips_with_lists_as_tuples(value: object) -> None:
    assert exact(round_trip(value)) == exact(as_tuples(value))
    assert exact(round_trip(round_trip(value))) == exact(round_trip(value))


@given(st.lists(encodable, max_size=6))
def test_rows_round_trip_like_single_values(rows: list[object]) -> None:
    assert exact(through_the_wire(rows)) == exact([round_trip(row) for row in rows])


@given(st.integers(0, 3).flatmap(lambda n: st.lists(st.tuples(*[scalars] * n), max_size=6)))
@settings(max_examples=200)
def test_tuples_of_one_width_round_trip_with_their_types(rows: list[tuple[object, ...]]) -> None:
    assert exact(through_the_wire(rows)) == exact(rows)


alike = st.sampled_from([1, 1.0, True, 0, 0.0, -0.0, False, float("nan"), "", b"", None, "a", ()])


@given(st.lists(st.tuples(alike, alike), min_size=2, max_size=5))
@settings(max_examples=300)
def test_equal_values_of_other_types_are_never_written_as_one(
    rows: list[tuple[object, object]],
) -> None:
    assert exact(through_the_wire(rows)) == exact(rows)


EXTENSION, MOMENT = msgpack.ExtType(1, b"x"), msgpack.Timestamp(1, 2)


@pytest.mark.parametrize(
    "rows",
    [
        [EXTENSION],
        [EXTENSION, EXTENSION],
        [EXTENSION, (1, b"x")],
        [(EXTENSION, MOMENT)],
        [(EXTENSION, 1), (EXTENSION, 1)],
    ],
)
def test_msgpack_extensions_round_trip_with_the_same_bytes(rows: list[object]) -> None:
    """The bytes of an output do not depend on the batch in which it is encoded."""
    found = unpack_rows(pack_rows(rows))
    assert repr(found) == repr(rows)
    assert pack_rows(found) == pack_rows(rows)


@pytest.mark.parametrize(
    "value",
    [{1, 2}, object(), 2**64, -(2**63) - 1, 1j, "\ud800", [object()], {"a": {1}}, range(3), len],
)
def test_unencodable_value_is_rejected_and_the_next_one_is_encoded(value: object) -> None:
    with pytest.raises(PayloadError, match="cannot be sent"):
        pack(value)
    assert unpack(pack((1, "a"))) == (1, "a")


@given(st.binary(max_size=60))
@settings(max_examples=400)
def test_arbitrary_bytes_are_decoded_or_malformed_and_nothing_else(data: bytes) -> None:
    with suppress(MalformedMessage):
        unpack(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xd4\xfex",  # an extension with a code below 0
        b"\x92\x01",
        b"\x01\x01",
        b"\xa2\xff\xff",
        b"\x81\x80\x01",  # a map as a key
        b"\xdd\xff\xff\xff\xff",  # an array of 2^32 - 1
        b"\xc7\x05\xff\x00\x00\x00\x00\x00",  # a timestamp of wrong length
        b"\x91" * 5000 + b"\x90",
    ],
)
def test_bytes_that_pack_never_makes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        unpack(data)


@pytest.mark.parametrize(
    "encoded",
    [
        (2, PLAIN, (1,)),
        (1, PLAIN, (1, 2)),
        None,
        (1, 2),
        ("1", 2, ()),
        (2, 0, ((1, 2), (1,))),
        (-1, 1, (7,)),
        (2**40, 1, (7,)),
        (2**62, PLAIN, ()),
    ],
)
def test_inconsistent_columns_are_malformed(encoded: object) -> None:
    with pytest.raises(MalformedMessage):
        decode_rows(encoded)


@given(st.integers(-4, 6), st.integers(-4, 9), st.lists(encodable, max_size=3))
@settings(max_examples=200)
def test_columns_are_decoded_to_the_announced_number_of_rows_or_malformed(
    count: int, mask: int, parts: list[object]
) -> None:
    try:
        rows = decode_rows((count, mask, parts))
    except MalformedMessage:
        return
    assert len(rows) == count


# Limits of records


def nested(levels: int, kind: str) -> object:
    value: object = "innermost"
    for _ in range(levels):
        value = {"dict": {"a": value}, "list": [value], "tuple": (value,)}[kind]
    return value


def test_record_above_a_limit_by_one_level_or_byte_is_rejected() -> None:
    for kind in ("dict", "list", "tuple"):
        assert not why_invalid_record(nested(RECORD_DEPTH_MAX, kind), 1)
        assert f"more than {RECORD_DEPTH_MAX} deep" in why_invalid_record(
            nested(RECORD_DEPTH_MAX + 1, kind), 1
        )
    assert not why_invalid_record("", RECORD_BYTES_MAX)
    assert str(RECORD_BYTES_MAX) in why_invalid_record("", RECORD_BYTES_MAX + 1)


def test_only_producer_records_may_not_have_sequences_as_keys() -> None:
    record = {"pairs": [{(1, 2): 3}]}
    assert not why_invalid_record(record, 1)
    assert "keys that are sequences" in why_invalid_record(record, 1, of_producer=True)
    assert not why_invalid_record({1: 2, 2.5: 3, b"4": 5, None: 6}, 1, of_producer=True)


class Interrupted(dict[str, int]):
    """Value during whose encoding another thread encodes one, too."""

    def items(self) -> Any:
        thread = Thread(target=pack, args=(list(range(100)),))
        thread.start()
        thread.join()
        return super().items()


def test_threads_that_encode_at_the_same_time_do_not_mix_their_bytes() -> None:
    assert unpack(pack(["before", Interrupted(a=1), "after"])) == ("before", {"a": 1}, "after")
