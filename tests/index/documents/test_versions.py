"""A version comes back from its payload as it was; what is no version is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.connectors.files.generated import positions_of_words, words_of_text
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import travelled
from driftline.index.documents.versions import (
    Replaced,
    Version,
    decode,
    encode,
    replaced,
    words_of,
)
from tests.engine.state.states import exact, travelling
from tests.index.documents.versions import versions


@given(versions)
def test_a_version_comes_back_from_its_payload_as_it_was(version: Version) -> None:
    payload = travelled(encode(version))
    assert exact(payload) == exact(encode(version))  # sender and receiver see the same types
    assert decode(payload) == version


def outcome(payload: object) -> object:
    """What an index makes of a payload: None if it is refused."""
    try:
        return decode(payload)
    except MalformedMessage:
        return None


@given(travelling)
def test_what_is_no_version_is_refused(payload: object) -> None:
    assert outcome(payload) is None


@given(versions, st.data())
def test_a_payload_with_one_part_changed_is_refused_or_another_version(
    version: Version, data: st.DataObject
) -> None:
    """Nothing but MalformedMessage, and nothing that would not be written like this."""

    def changed(value: object, depth: int) -> object:
        if isinstance(value, tuple) and value and (depth < 2 or data.draw(st.booleans())):
            at = data.draw(st.integers(0, len(value) - 1))
            return (*value[:at], changed(value[at], depth + 1), *value[at + 1 :])
        if isinstance(value, bytes) and data.draw(st.booleans()):
            return data.draw(st.binary(max_size=len(value) + 2))
        if isinstance(value, tuple) and value and data.draw(st.booleans()):
            return data.draw(st.sampled_from([value[1:], (*value, value[0]), value[::-1]]))
        return data.draw(travelling)

    payload = travelled(changed(encode(version), 0))
    found = outcome(payload)
    if isinstance(found, Version):
        assert exact(encode(found)) == exact(payload)


@pytest.mark.parametrize(
    "field",
    [
        (1, ("a",), b""),
        (1, ("a",), b"\1"),
        (1, ("a",), b"\0\0"),
        (1, ("a",), b"\2\0\0"),
        (1, ("a",), b"\3\0\1"),
        (1, ("a",), b"\1\0\0"),
        (1, ("a",), b"\1\x80"),
        (1, ("a",), b"\1\x80\0"),
        (1, ("a",), b"\1\xff\xff\xff\xff\x0f"),
        (1, ("a",), b"\1\xff\xff\xff\xff\xff\xff\1"),
        (1, ("a", "a"), b"\1\0\1\1"),
        (1, (7,), b"\1\0"),
        (1, "a", b"\1\0"),
        (-1, ("a",), b"\1\0"),
        (2**32, ("a",), b"\1\0"),
        (True, ("a",), b"\1\0"),
    ],
)
def test_a_field_that_nobody_has_written_is_refused(field: object) -> None:
    good: tuple[Any, ...] = ("c", "7", ((1, ("a",), b"\1\0"),), (), b"", 0, None)
    assert decode(good).fields == (words_of(["a"]),)
    with pytest.raises(MalformedMessage, match="not a version of a document"):
        decode((*good[:2], (field,), *good[3:]))


@given(st.text())
def test_words_have_the_positions_that_they_have_everywhere(text: str) -> None:
    found = words_of(words_of_text(text))
    assert {word: list(positions) for word, positions in found.words} == positions_of_words(text)
    assert found.length == len(words_of_text(text))


def test_what_a_version_replaces_is_said_by_length_and_words() -> None:
    version = Version("c", "7", (words_of(["a", "b", "a"]), None), (), b"")
    assert replaced(version) == (Replaced(3, ("a", "b")), None)
