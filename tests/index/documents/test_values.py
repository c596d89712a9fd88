"""Values are compared by what they say, however that is written."""

from __future__ import annotations

import time
from calendar import timegm
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.index.documents.values import (
    Kind,
    date_in_words,
    number_of,
    period_of,
    value_of,
)

offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=offsets)


@given(moments)
def test_a_date_time_is_its_microseconds_since_1970(moment: datetime) -> None:
    microseconds = timegm(moment.utctimetuple()) * 1_000_000 + moment.microsecond
    assert value_of(Kind.DATE, moment.isoformat()) == microseconds
    assert period_of(moment.isoformat(" ")) == (microseconds, microseconds)
    assert period_of(date_in_words(microseconds)) == (microseconds, microseconds)


def test_a_date_without_an_offset_is_in_utc_on_every_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        found = period_of("1970-01-02"), period_of("1970-01-01T00:00:01")
    time.tzset()
    assert found == ((86_400_000_000, 172_799_999_999), (1_000_000, 1_000_000))


@given(st.dates())
def test_a_date_is_the_day_in_utc(day: object) -> None:
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
