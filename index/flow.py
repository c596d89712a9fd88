"""The flow: document -> (word, positions) -> posting list per word -> change records.

For each word of each document there is one change record ``(word, document, positions, length)``:
the posting that was added or replaced, and the number of documents that the word's posting list
now has. A document that comes again replaces its posting in the words that it has again.
"""

import re
from collections import defaultdict
from collections.abc import Mapping

from engine.flow import Flow
from engine.state import MapState

Posting = tuple[str, str | int, tuple[int, ...]]
Change = tuple[str, str | int, tuple[int, ...], int]

_words = re.compile(r"\w+").findall
"""Letters, digits and underscores of any script (Unicode)."""


def postings(record: Mapping[str, object]) -> list[Posting]:
    """The words of a document, lower-cased, in order of first appearance, with their positions."""
    document = record["id"]
    assert isinstance(document, (str, int))
    found: defaultdict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(_words(document_text(record).lower())):
        found[word].append(position)
    return [(word, document, tuple(positions)) for word, positions in found.items()]


def document_text(record: Mapping[str, object]) -> str:
    """The text that is indexed: the title, where there is one, and the text."""
    text, title = record["text"], record.get("title")
    return f"{title}\n{text}" if title else str(text)


def update(posting: Posting, index: MapState[str | int, tuple[int, ...]]) -> Change:
    """Put a posting into its word's list and tell what has changed."""
    word, document, positions = posting
    index[document] = positions
    return word, document, positions, len(index)


def inverted_index() -> Flow:
    """A fresh copy of the flow."""
    flow = Flow("inverted-index")
    (
        flow.source("documents")
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
