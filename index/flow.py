"""The flow: document -> (word, positions) -> posting list per word -> change records.

For each word of each document there is one change record ``(word, document, positions, length)``:
the posting that was added or replaced, and the number of documents that the word's posting list
now has. A document that comes again replaces its posting in the words that it has again.
"""

from collections.abc import Mapping

from driftline.engine.flow.flow import Flow
from driftline.engine.sources.texts.words import document_text, positions_of_words
from driftline.engine.state.managed import MapState

Posting = tuple[str, str | int, tuple[int, ...]]
Change = tuple[str, str | int, tuple[int, ...], int]


def postings(record: Mapping[str, object]) -> list[Posting]:
    """The words of a document, lower-cased, in order of first appearance, with their positions."""
    document = record["id"]
    assert isinstance(document, (str, int))
    found = positions_of_words(document_text(record))
    return [(word, document, tuple(positions)) for word, positions in found.items()]


def update(posting: Posting, index: MapState[str | int, tuple[int, ...]]) -> Change:
    """Put a posting into its word's list and tell what has changed."""
    word, document, positions = posting
    index[document] = positions
    return word, document, positions, len(index)


def inverted_index() -> Flow:
    """A fresh copy of the flow."""
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
