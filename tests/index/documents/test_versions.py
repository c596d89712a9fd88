"""A version comes back from its payload as it was; what is no version is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.connectors.files.generated import positions_of_words, words_of_text
from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import travelled
from driftline.index.documents.versions import (
    DocumentVersion,
    ReplacedField,
    decode,
    encode,
    replaced,
    words_of,
)
from tests.engine.state.states import exact, travelling
from tests.index.documents.versions import versions


@given(versions)
def test_a_version_comes_back_from_its_payload_as_it_was(version: DocumentVersion) -> None:
    payload = travelled(encode(version))
    assert exact(payload) == exact(encode(version))  # sender and receiver see the same types
    assert decode(payload) == version


@given(travelling)
def test_what_is_no_version_is_refused(payload: object) -> None:
    with pytest.raises(MalformedMessage, match="not a version of a document"):
        decode(payload)


@given(st.text())
def test_words_have_the_positions_that_they_have_everywhere(text: str) -> None:
    found = words_of(words_of_text(text))
    assert {word: list(positions) for word, positions in found.words} == positions_of_words(text)
    assert found.length == len(words_of_text(text))


def test_what_a_version_replaces_is_said_by_length_and_words() -> None:
    version = DocumentVersion("c", "7", (words_of(["a", "b", "a"]), None), (), b"")
    assert replaced(version) == (ReplacedField(3, ("a", "b")), None)
