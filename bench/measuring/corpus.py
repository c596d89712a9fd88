"""The corpus: the texts that every run of the benchmark feeds, in the same order.

By default sections of Wikipedia articles; any file that `engine.sources` reads will do. Everything
is in memory before a run begins, so that no reading and parsing is measured.
"""

from collections.abc import Iterator, Sequence
from itertools import count as count_from
from itertools import islice
from pathlib import Path

from driftline.engine.errors import InputError
from driftline.engine.sources import BadRecord, find_sample
from driftline.engine.sources.inputs import open_shaped
from driftline.engine.sources.record import Shape
from driftline.engine.sources.texts.words import document_text, words_of_text

Documents = Sequence[tuple[str, str]]
"""(id, text) each; no id twice."""

IN_SECTIONS = Shape(sections=True)


def load_documents(count: int, path: Path | None = None, shape: Shape = IN_SECTIONS) -> Documents:
    """`count` documents of a file, or of the sample if `path` is None.

    Unreadable records are passed over. When the file has too few, its texts come again with
    fresh ids: `12#0`, `12#0~2`, `12#0~3`. Raises InputError if there is no document.
    """
    path = path or find_sample()
    once = list(islice(_readable(open_shaped(path, shape).read(1)), count))
    if count and not once:
        raise InputError(path.name, 1, "no record of the file is a document with a text")
    return list(islice(_repeated(once), count))


def _readable(found: Iterator[tuple[int, object] | BadRecord]) -> Iterator[tuple[str, str]]:
    for record in found:
        if isinstance(record, BadRecord):
            continue
        _, document = record
        if isinstance(document, dict) and isinstance(document.get("text"), str):
            yield str(document["id"]), document_text(document)


def _repeated(documents: Documents) -> Iterator[tuple[str, str]]:
    if not documents:
        return
    yield from documents
    for turn in count_from(2):
        for document, text in documents:
            yield f"{document}~{turn}", text


def expected_records(documents: Documents) -> list[int]:
    """How many changes each document makes: one for each distinct word."""
    return [len(set(words_of_text(text))) for _, text in documents]
