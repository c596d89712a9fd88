"""XML of pages: a Wikimedia dump, or the simple format `<pages><page id="" title="">text</page>`.

The root element tells the two formats apart. A page of a dump becomes {"id": 12, "title":
"Anarchism", "text": the wikitext of its latest revision}. Redirects and pages outside the article
namespace are skipped and take no number.

Memory: the largest page; of a page's revisions at most two are held, so this is also true of a dump
with the whole history. External entities are not resolved (ElementTree never does), and expat stops
at a document whose entities expand without bound.
"""

import re
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from driftline.engine.sources.files.buffers import Broken
from driftline.engine.sources.record import Malformed, Row

MAX_PAGE_BYTES = 2**26
"""Size of a page, or of one revision of it, at most; MediaWiki itself allows 2 MiB."""

_CANONICAL_INT = re.compile(r"0|-?[1-9][0-9]{0,17}")


def page_rows(buffers: Iterable[bytes]) -> Iterator[Row]:
    """The pages of a file of either format."""
    for root, child in _children(buffers):
        if _name(child) == "page":
            yield from _wiki_page(child) if root == "mediawiki" else _simple_page(child)


def _wiki_page(page: Element) -> Iterator[Row]:
    if page.find("{*}redirect") is not None or page.findtext("{*}ns", "0").strip() != "0":
        return
    title = page.findtext("{*}title", "").strip()
    number = page.findtext("{*}id", "").strip()
    revision = page.find("{*}revision")
    if not _CANONICAL_INT.fullmatch(number):
        yield Malformed("a page without a numeric <id>", title)
    elif not title:
        yield Malformed("a page without <title>", f"page {number}")
    elif revision is None:
        yield Malformed("a page without <revision>", title)
    else:
        text = revision.findtext("{*}text", "")
        yield {"id": int(number), "title": title, "text": text}


def _simple_page(page: Element) -> Iterator[Row]:
    text = "".join(page.itertext())
    name = page.get("id")
    if name is None:
        yield Malformed('a page without the attribute "id"', text.strip())
    else:
        is_int = _CANONICAL_INT.fullmatch(name)
        yield {"id": int(name) if is_int else name, "title": page.get("title", ""), "text": text}


def _children(buffers: Iterable[bytes]) -> Iterator[tuple[str, Element]]:
    """(name of the root, child element) for each child of the root; a child is freed afterwards."""
    parser: XMLPullParser[Element] = XMLPullParser(["start", "end"])
    path: list[Element] = []  # the elements that are open
    pending_bytes = 0
    for buffer in _and_end(buffers):
        pending_bytes += len(buffer)
        for event, element in _events(parser, buffer):
            if event == "start":
                path.append(element)
                if len(path) == 1:
                    _check_root(element)
                continue
            path.pop()
            if len(path) == 1:
                yield _name(path[0]), element
                path[0].clear()
            elif len(path) == 2:
                _forget_older_revisions(path[1])
            if len(path) <= 2:
                pending_bytes = 0
        if pending_bytes > MAX_PAGE_BYTES:
            raise Broken(f"a page of more than {MAX_PAGE_BYTES} bytes")


def _and_end(buffers: Iterable[bytes]) -> Iterator[bytes]:
    yield from filter(None, buffers)
    yield b""


def _events(parser: "XMLPullParser[Element]", buffer: bytes) -> Iterator[tuple[str, Element]]:
    """(event, element) that the parser gives for the next buffer; an empty buffer ends the file."""
    try:
        if buffer:
            parser.feed(buffer)
        else:
            parser.close()
        for event in parser.read_events():
            if len(event) == 2 and isinstance(event[1], Element):
                yield event[0], event[1]
    except (ParseError, ValueError, LookupError) as error:  # the last two: a strange encoding
        what = "malformed XML" if buffer else "the XML ends too early"
        raise Broken(f"{what}: {error}") from None


def _check_root(root: Element) -> None:
    if _name(root) not in ("mediawiki", "pages"):
        raise Broken(f"the root element is <{_name(root)}>, not <mediawiki> or <pages>")


def _forget_older_revisions(page: Element) -> None:
    revisions = page.findall("{*}revision")
    if len(revisions) > 1:
        older = min(revisions, key=lambda revision: revision.findtext("{*}timestamp", ""))
        page.remove(older)


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]
