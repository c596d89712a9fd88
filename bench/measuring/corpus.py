"""Corpus: the texts that all runs of a benchmark process, in the same order.

By default the texts are sections of Wikipedia articles; any file that `connectors.inputs` reads
works. All texts are in memory before a run begins, so reading and parsing are not measured.
"""

from collections.abc import Iterator, Sequence
from itertools import count as count_from
from itertools import islice
from pathlib import Path

from driftline.connectors.files import find_sample
from driftline.connectors.files.generated import document_text, words_of_text
from driftline.connectors.inputs import open_with_format
from driftline.engine.errors import InputError
from driftline.engine.sources import BadRecord
from driftline.engine.sources.record import RecordFormat

Documents = Sequence[tuple[str, str]]
"""(id, text) of each document; ids are unique."""

SECTIONS = RecordFormat(sections=True)


def load_documents(
    count: int, path: Path | None = None, record_format: RecordFormat = SECTIONS
) -> Documents:
    """Return `count` documents of a file, or of the sample if `path` is None.

    Unreadable records are skipped. If the file has too few documents, its texts are repeated with
    new ids: `12#0`, `12#0~2`, `12#0~3`. Raises InputError if the file has no document.
    """
    path = path or find_sample()
    distinct = list(islice(_readable(open_with_format(path, record_format).read(1)), count))
    if count and not distinct:
        raise InputError(path.name, 1, "no record of the file is a document with a text")
    return list(islice(_repeat(distinct), count))


def _readable(records: Iterator[tuple[int, object] | BadRecord]) -> Iterator[tuple[str, str]]:
    for record in records:
        if isinstance(record, BadRecord):
            continue
        _, document = record
        if isinstance(document, dict) and isinstance(document.get("text"), str):
            yield str(document["id"]), document_text(document)


def _repeat(documents: Documents) -> Iterator[tuple[str, str]]:
    if not documents:
        return
    yield from documents
    for repetition in count_from(2):
        for document, text in documents:
            yield f"{document}~{repetition}", text


def expected_outputs(documents: Documents) -> list[int]:
    """Return the number of outputs of each document: one per distinct word."""
    return [len(set(words_of_text(text))) for _, text in documents]
