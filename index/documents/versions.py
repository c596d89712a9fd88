"""Versions of documents, which the flow of an index emits, and their encoding.

A version is one state of a document, or its deletion. It carries its words with their positions, so
that consumers need not analyse text. It also carries the words of the version that it replaces,
because every shard maintains exact statistics of all documents, also of those in other shards.

On the wire a text field is (length, words, numbers as bytes). Words are in order of first
appearance. For each word, the numbers are: the number of its positions; the distance of its first
position from the first position of the previous word; the distance of each further position from
its predecessor. Numbers are encoded as varints: 7 bits per byte, lowest bits first; the high bit
means that the number continues in the next byte.

>>> version = DocumentVersion("documents", "7", (words_of("a cat eats a cat".split()),), (), b"{}")
>>> version.fields[0]
Words(length=5, words=(('a', (0, 3)), ('cat', (1, 4)), ('eats', (2,))))
>>> encode(version)[2]
((5, ('a', 'cat', 'eats'), b'\\x02\\x00\\x03\\x02\\x01\\x03\\x01\\x01'),)
>>> decode(encode(version)) == version
True
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from operator import sub
from typing import Literal, NamedTuple

import msgspec

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import pack, unpack
from driftline.index.documents.values import Value


class Words(NamedTuple):
    """The words of a text field.

    `length`: number of words of the text; `words`: each different word with its positions,
    ascending, in order of first appearance.
    """

    length: int
    words: tuple[tuple[str, tuple[int, ...]], ...]


class ReplacedField(NamedTuple):
    """Statistics to subtract when a text is replaced.

    `length`: number of words of the text; `words`: each different word once.
    """

    length: int
    words: tuple[str, ...]


class DocumentVersion(NamedTuple):
    """A state of a document, or its deletion (`deleted`).

    `fields`: words of each text field; `values`: value of each keyword, number and date field; both
    by field number, None for a field that the document lacks. `stored`: the document as canonical
    JSON, empty if deleted. `replaced`: per text field, the statistics of the version that this one
    replaces, None if that version lacks the field; None as a whole if there is nothing to replace.
    """

    collection: str
    id: str
    fields: tuple[Words | None, ...]
    values: tuple[Value | None, ...]
    stored: bytes
    deleted: bool = False
    replaced: tuple[ReplacedField | None, ...] | None = None


def words_of(words: Iterable[str]) -> Words:
    """Collect the words of a text with their positions; `words`: in the order of the text."""
    by_word: defaultdict[str, list[int]] = defaultdict(list)
    position = -1
    for position, word in enumerate(words):
        by_word[word].append(position)
    return Words(position + 1, tuple(zip(by_word, map(tuple, by_word.values()), strict=True)))


def replaced_fields(version: DocumentVersion) -> tuple[ReplacedField | None, ...]:
    """Return the value of `replaced` for the next version of the document."""
    return tuple(
        None
        if field is None
        else ReplacedField(field.length, tuple(word for word, _ in field.words))
        for field in version.fields
    )


def pack_replaced(replaced: tuple[ReplacedField | None, ...]) -> bytes:
    """Pack `replaced` for the wire and the flow's state; the bytes take a tenth of its memory."""
    return pack(tuple(field and tuple(field) for field in replaced))


class VersionSummary(NamedTuple):
    """A version without words and values, for consumers that do not index documents."""

    collection: str
    id: str
    stored: bytes
    deleted: bool


def decode_summary(payload: object) -> VersionSummary:
    """Decode an encoded version to a summary. Raises MalformedMessage if it is not a version."""
    match payload:
        case (str(collection), str(id), _, _, bytes(stored), (0 | 1) as deleted, _):
            return VersionSummary(collection, id, stored, bool(deleted))
    raise MalformedMessage("not a version of a document")


def encode(version: DocumentVersion) -> tuple[object, ...]:
    """Encode a version as a payload."""
    replaced = version.replaced
    return (
        version.collection,
        version.id,
        tuple(None if field is None else _encode_words(field) for field in version.fields),
        version.values,
        version.stored,
        int(version.deleted),
        None if replaced is None else pack_replaced(replaced),
    )


_Encoded = tuple[
    str,
    str,
    tuple[tuple[int, tuple[str, ...], bytes] | None, ...],
    tuple[float | int | tuple[str, ...] | None, ...],
    bytes,
    Literal[0, 1],
    bytes | None,
]
_UnpackedReplaced = tuple[tuple[int, tuple[str, ...]] | None, ...]


def decode(payload: object) -> DocumentVersion:
    """Decode what `encode` returns. Raises MalformedMessage if the payload is not a version."""
    try:
        encoded: _Encoded = msgspec.convert(payload, _Encoded)
        collection, id_, fields, values, stored, deleted, packed = encoded
        replaced: _UnpackedReplaced | None = None
        if packed is not None:
            replaced = msgspec.convert(unpack(packed), _UnpackedReplaced)
        return DocumentVersion(
            collection,
            id_,
            tuple(None if field is None else _decode_words(*field) for field in fields),
            values,
            stored,
            bool(deleted),
            None
            if replaced is None
            else tuple(None if field is None else ReplacedField(*field) for field in replaced),
        )
    except (ValueError, msgspec.ValidationError) as error:
        raise MalformedMessage(f"not a version of a document: {error}") from None


def _encode_words(field: Words) -> tuple[object, ...]:
    numbers: list[int] = []
    previous_first = 0
    for _, positions in field.words:
        numbers += (len(positions), positions[0] - previous_first)
        previous_first = positions[0]
        if len(positions) > 1:
            numbers += map(sub, positions[1:], positions)
    return field.length, tuple([word for word, _ in field.words]), encode_varints(numbers)


def _decode_words(length: int, words: tuple[str, ...], data: bytes) -> Words:
    numbers = iter(_decode_varints(data))
    first = 0
    word_positions: list[tuple[str, tuple[int, ...]]] = []
    try:
        for word in words:
            count = next(numbers)
            first += next(numbers)
            if count == 1:
                word_positions.append((word, (first,)))
            else:
                positions = tuple(accumulate(islice(numbers, count - 1), initial=first))
                word_positions.append((word, positions))
    except StopIteration:
        raise ValueError("a word has no positions") from None
    return Words(length, tuple(word_positions))


def encode_varints(numbers: Sequence[int]) -> bytes:
    """Encode numbers with 7 bits per byte."""
    if max(numbers, default=0) <= 0x7F:
        return bytes(numbers)
    data = bytearray()
    for number in numbers:
        while number > 0x7F:
            data.append(number & 0x7F | 0x80)
            number >>= 7
        data.append(number)
    return bytes(data)


def _decode_varints(data: bytes) -> Sequence[int]:
    """Decode what `encode_varints` returns."""
    return data if data.isascii() else list(_iter_varints(data))


def _iter_varints(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte <= 0x7F:
            yield number
            number = shift = 0
