"""The corpus: the texts that every run of the benchmark feeds, in the same order.

By default sections of Wikipedia articles; any file that `engine.sources` reads will do. Everything
is in memory before a run begins, so that no reading and parsing is measured.
"""

from collections.abc import Iterator, Sequence
from itertools import count as count_from
from itertools import islice
from pathlib import Path

from driftline.engine.errors import InputError
from driftline.engine.sources import BadRecord, find_sample, open_source


def load_documents(
    count: int,
    path: Path | None = None,
    *,
    sections: bool = True,
    text_field: str | None = None,
) -> list[tuple[str, str]]:
    """`count` pairs (id, text) from a file, or from the sample if `path` is None.

    Unreadable records are passed over. When the file has too few, its texts come again with
    fresh ids: `12#0`, `12#0~2`, `12#0~3`.
    """
    path = path or find_sample()
    source = open_source(path, sections=sections, text_field=text_field)
    once = list(islice(_readable(source.read(1)), count))
    if count and not once:
        raise InputError(path.name, 1, "no record of the file is a document with a text")
    return list(islice(_repeated(once), count))


def _readable(found: Iterator[tuple[int, object] | BadRecord]) -> Iterator[tuple[str, str]]:
    for record in found:
        if isinstance(record, BadRecord):
            continue
        _, document = record
        if isinstance(document, dict) and isinstance(document.get("text"), str):
            yield str(document["id"]), _titled(document.get("title"), document["text"])


def _titled(title: object, text: str) -> str:
    return f"{title}\n{text}" if title else text


def _repeated(documents: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    if not documents:
        return
    yield from documents
    for turn in count_from(2):
        for document, text in documents:
            yield f"{document}~{turn}", text
