"""Blocks of stored documents: round trip, and bounds of the block size."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from driftline.index.postings.document_blocks import BLOCK_BYTES, Block, blocks, repack

documents = st.lists(
    st.sampled_from(
        [
            0,
            1,
            100,
            BLOCK_BYTES // 3,
            BLOCK_BYTES // 2,
            BLOCK_BYTES - 1,
            BLOCK_BYTES,
            3 * BLOCK_BYTES,
        ]
    ).map(lambda size: size.to_bytes(4, "big") * (size // 4) + bytes(size % 4)),
    max_size=12,
)


def content(found: list[Block]) -> list[bytes]:
    """Return the documents in blocks."""
    result = []
    for sizes, data in found:
        rest = zlib.decompress(data)
        for size in sizes:
            result.append(rest[:size])
            rest = rest[size:]
        assert not rest
    return result


@given(documents)
def test_documents_round_trip_through_blocks_of_16_kib(some: list[bytes]) -> None:
    found = list(blocks(some))
    assert content(found) == some
    assert all(sum(sizes) >= BLOCK_BYTES for sizes, _ in found[:-1])
    assert all(sum(sizes[:-1]) < BLOCK_BYTES for sizes, _ in found)


@given(st.lists(documents, max_size=4))
def test_small_blocks_are_joined(parts: list[list[bytes]]) -> None:
    written = [block for part in parts for block in blocks(part)]
    found = list(repack(written))
    assert content(found) == [document for part in parts for document in part]
    assert all(sum(sizes) >= BLOCK_BYTES // 2 for sizes, _ in found[:-1])
    assert all(sum(sizes[:-1]) < BLOCK_BYTES for sizes, _ in found)
