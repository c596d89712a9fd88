"""Small input files in all formats, for tests of file sources."""

import bz2
import gzip
import lzma
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import zstandard

from driftline.connectors.files import open_source
from driftline.engine.sources import BadRecord, Source

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".bz2": bz2.compress,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, compressed if its name says so."""
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(data))
    return path


def dump(pages: Sequence[str]) -> str:
    """Return a Wikimedia dump of these <page> elements."""
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="ru">'
    siteinfo = '<siteinfo><namespaces><namespace key="0"/></namespaces></siteinfo>'
    return f"{head}{siteinfo}{''.join(pages)}</mediawiki>"


def page(number: int, title: str, text: str, ns: int = 0, extra: str = "") -> str:
    """Return a <page> with one revision."""
    return (
        f"<page><title>{escape(title)}</title><ns>{ns}</ns><id>{number}</id>{extra}"
        f"<revision><id>{number + 900}</id><timestamp>2020-01-01T00:00:00Z</timestamp>"
        f"<text>{escape(text)}</text></revision></page>"
    )


def everything(source: Source, start: int = 1) -> list[tuple[int, object] | BadRecord]:
    """Return all records and bad records of a source."""
    return list(source.read(start))


def records(path: Path, sections: bool = False) -> list[object]:
    """Return the records of a file without bad records; their times count from 1."""
    found = everything(open_source(path, sections=sections))
    assert [item[0] for item in found if not isinstance(item, BadRecord)] == list(
        range(1, len(found) + 1)
    )
    return [item[1] for item in found if not isinstance(item, BadRecord)]


def bad(path: Path) -> list[tuple[int, str]]:
    """Return the (time, reason) of each bad record of a file."""
    found = everything(open_source(path))
    return [(item.time, item.reason) for item in found if isinstance(item, BadRecord)]
