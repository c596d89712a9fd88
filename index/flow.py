"""Flow of an inverted index: document -> (word, positions) -> posting lists -> change records.

Each word of each document causes one change record ``(word, document, positions, length)``: the
posting that was added or replaced, and the new number of documents in the word's posting list. If a
document is sent again, its new postings replace the previous ones of the same words. Postings of
words that the document no longer contains stay.

The search index of `driftline serve` has another flow (`index.documents.writes`).
"""

from collections.abc import Mapping

from driftline.connectors.files.generated import document_text, positions_of_words
from driftline.engine.flow.flow import Flow
from driftline.engine.state.managed import MapState

Posting = tuple[str, str | int, tuple[int, ...]]
Change = tuple[str, str | int, tuple[int, ...], int]


def postings(record: Mapping[str, object]) -> list[Posting]:
    """Return the postings of a document: its words in lower case, in order of first appearance."""
    document = record["id"]
    assert isinstance(document, (str, int))
    by_word = positions_of_words(document_text(record))
    return [(word, document, tuple(positions)) for word, positions in by_word.items()]


def update(posting: Posting, index: MapState[str | int, tuple[int, ...]]) -> Change:
    """Add a posting to its word's posting list, and return the change record."""
    word, document, positions = posting
    index[document] = positions
    return word, document, positions, len(index)


def inverted_index() -> Flow:
    """Create a new instance of the flow."""
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
