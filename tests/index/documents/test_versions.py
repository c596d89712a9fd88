"""A version comes back from its payload as it was; what is no version is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.connectors.files.generated import positions_of_words, words_of_text
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import round_trip
from driftline.index.documents.versions import (
    DocumentVersion,
    ReplacedField,
    decode,
    encode,
    replaced_fields,
    words_of,
)
from tests.engine.state.states import exact, travelling
from tests.index.documents.versions import versions


@given(versions)
def test_version_round_trips_through_its_payload(version: DocumentVersion) -> None:
    payload = round_trip(encode(version))
    assert exact(payload) == exact(encode(version))  # sender and receiver see the same types
    assert decode(payload) == version


@given(travelling)
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
