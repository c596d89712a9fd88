"""Blobs: outputs survive a round trip, and checksums do not depend on the cut into bundles."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import Label
from driftline.engine.operators.steps import FAILURES
from driftline.engine.wire.bundles import from_blob, payload_columns, running_checksum, to_blob
from driftline.engine.wire.codec import pack
from tests.engine.state.states import as_tuples, encodable, exact, scalars

labels = st.lists(st.integers(0, 2**62), min_size=2, max_size=4).map(tuple)
outputs = st.lists(
    st.tuples(labels, st.sampled_from([0, 1, FAILURES]), encodable), min_size=1, max_size=6
)


@given(outputs)
def test_outputs_round_trip_in_order(found: list[tuple[Label, int, object]]) -> None:
    blob = to_blob(
        [label for label, _, _ in found],
        [sink for _, sink, _ in found],
        [value for _, _, value in found],
    )
    items = [(item.label, item.sink, item.value) for item in from_blob(blob)]
    assert exact(items) == exact([(label, sink, as_tuples(value)) for label, sink, value in found])


def test_equal_outputs_are_encoded_to_equal_bytes() -> None:
    """The determinism check compares bytes, so lists and tuples must be encoded alike."""
    one = to_blob([(1, 0), (1, 1)], [0, 0], [("a", 1), ("b", [2])])
    assert one == to_blob([(1, 0), (1, 1)], [0, 0], [("a", 1), ("b", (2,))])
    other = to_blob([(1, 0), (1, 1)], [0, 0], [("a", 1), ("b", (2.0,))])
    assert one != other


@given(st.lists(st.binary(max_size=20), max_size=6), st.integers(0, 6))
def test_running_checksum_can_be_continued(blobs: list[bytes], cut: int) -> None:
    whole = half = 0
    for blob in blobs:
        whole = running_checksum(whole, blob)
    for blob in blobs[:cut]:
        half = running_checksum(half, blob)
    for blob in blobs[cut:]:
        half = running_checksum(half, blob)
    assert half == whole


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(st.tuples(*[scalars] * width), min_size=1, max_size=6)
    )
)
@settings(max_examples=150)
def test_payloads_of_one_width_can_be_read_as_columns(rows: list[tuple[object, ...]]) -> None:
    blob = to_blob([(1, i) for i in range(len(rows))], [0] * len(rows), rows)
    found = payload_columns(blob, len(rows[0]))
    assert exact([tuple(column) for column in found]) == exact(list(zip(*rows, strict=True)))


@pytest.mark.parametrize("rows", [[(1, 2), (3,)], [1], ["ab"], [(1, 2), "ab"]], ids=range(4))
def test_payloads_of_mixed_width_are_malformed(rows: list[object]) -> None:
    blob = to_blob([(1, i) for i in range(len(rows))], [0] * len(rows), rows)
    with pytest.raises(MalformedMessage):
        payload_columns(blob, 2)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_rejected_as_a_blob(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        from_blob(data)


label_columns = (1, -1, ((1, 0),))


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (label_columns, 0),
        (label_columns, 0, (2, -1, (1, 2))),
        ((2, -1, ((1, 0), (1, 1))), (0,), (2, -1, (1, 2))),
        (label_columns, (0, 0), (1, -1, (1,))),
        (label_columns, None, (1, -1, (1,))),
        (7, 0, 7),
    ],
    ids=range(7),
)
def test_blob_with_inconsistent_parts_is_malformed(parts: object) -> None:
    with pytest.raises(MalformedMessage):
        from_blob(pack(parts))
