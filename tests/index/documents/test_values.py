"""Values are compared by meaning; versions round-trip through their payload."""

from __future__ import annotations

import time
from calendar import timegm
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.connectors.files.generated import positions_of_words, words_of_text
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import round_trip
from driftline.index.documents.values import (
    Kind,
    format_date,
    number_of,
    period_of,
    value_of,
)
from driftline.index.documents.versions import (
    DocumentVersion,
    ReplacedField,
    decode,
    encode,
    replaced_fields,
    words_of,
)
from tests.engine.state.states import encodable, exact
from tests.index.documents.versions import versions

offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=offsets)


@given(moments)
def test_date_time_value_is_microseconds_since_1970(moment: datetime) -> None:
    microseconds = timegm(moment.utctimetuple()) * 1_000_000 + moment.microsecond
    assert value_of(Kind.DATE, moment.isoformat()) == microseconds
    assert period_of(moment.isoformat(" ")) == (microseconds, microseconds)
    assert period_of(format_date(microseconds)) == (microseconds, microseconds)


def test_date_without_offset_is_in_utc_on_every_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        found = period_of("1970-01-02"), period_of("1970-01-01T00:00:01")
    time.tzset()
    assert found == ((86_400_000_000, 172_799_999_999), (1_000_000, 1_000_000))


@given(st.dates())
def test_date_covers_the_day_in_utc(day: object) -> None:
    first, last = period_of(str(day))
    assert first == period_of(f"{day}T00:00Z")[0]
    assert last == period_of(f"{day}T23:59:59.999999+00:00")[0]


@pytest.mark.parametrize(
    "text",
    ["", "2020", "2020-02-30", "20200101", "2020-01-01T24:00", "2020-01-01x10:00", "٢٠٢٠-01-01"],
)
def test_invalid_date_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date"):
        period_of(text)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60))
def test_number_and_its_text_have_the_same_value(number: float) -> None:
    assert value_of(Kind.NUMBER, number) == number_of(str(number)) == float(number)


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e999", "1_000", "0x1", " 1", "1 2", "."])
def test_invalid_number_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a (finite )?number"):
        number_of(text)


@given(versions)
def test_version_round_trips_through_its_payload(version: DocumentVersion) -> None:
    payload = round_trip(encode(version))
    assert exact(payload) == exact(encode(version))  # sender and receiver have the same types
    assert decode(payload) == version


@given(encodable)
def test_malformed_version_is_rejected(payload: object) -> None:
    with pytest.raises(MalformedMessage, match="not a version of a document"):
        decode(payload)


@given(st.text())
def test_word_positions_equal_those_of_the_text(text: str) -> None:
    found = words_of(words_of_text(text))
    assert {word: list(positions) for word, positions in found.words} == positions_of_words(text)
    assert found.length == len(words_of_text(text))


def test_replaced_version_is_described_by_length_and_words() -> None:
    version = DocumentVersion("c", "7", (words_of(["a", "b", "a"]), None), (), b"")
    assert replaced_fields(version) == (ReplacedField(3, ("a", "b")), None)
