"""The flow: document -> (word, positions) -> posting list per word -> change records.

Each word of each document gives one change record ``(word, document, positions, length)``: the
posting that was added or replaced, and the new number of documents in the word's posting list. A
document that comes again replaces the postings of the words that it still has.
"""

from collections.abc import Mapping

from driftline.connectors.files.generated import document_text, positions_of_words
from driftline.engine.flow.flow import Flow
from driftline.engine.state.managed import MapState

Posting = tuple[str, str | int, tuple[int, ...]]
Change = tuple[str, str | int, tuple[int, ...], int]


def postings(record: Mapping[str, object]) -> list[Posting]:
    """The words of a document, lower-cased, in order of first appearance, with their positions."""
    document = record["id"]
    assert isinstance(document, (str, int))
    by_word = positions_of_words(document_text(record))
    return [(word, document, tuple(positions)) for word, positions in by_word.items()]


def update(posting: Posting, index: MapState[str | int, tuple[int, ...]]) -> Change:
    """Put a posting into its word's posting list, and return the change record."""
    word, document, positions = posting
    index[document] = positions
    return word, document, positions, len(index)


def inverted_index() -> Flow:
    """A new instance of the flow."""
    flow = Flow("inverted-index")
    (
        flow.source("documents", of=dict[str, object])
        .flat_map(postings, name="words", fields=("word", "document", "positions"))
        .key_by("word")
        .scan(
            update,
            MapState[str | int, tuple[int, ...]]("postings"),
            name="index",
            fields=("word", "document", "positions", "length"),
        )
        .sink("changes")
    )
    return flow


flow = inverted_index()
