"""Plain text from MediaWiki markup, good enough to count and to index words.

    >>> clean("The '''[[Felis|cat]]'''{{efn|a pet}} eats [[mice]].<ref>Own work</ref>")
    'The cat eats mice.'
    >>> [heading for heading, _ in sections("A cat.\\n== Food ==\\nMice.")]
    ['', 'Food']

It works for all languages: it recognises files, categories and links to other wikis by their form
(a colon, a file ending, alone on a line), not by the names of namespaces.

Cost: each pass is linear in the text, even for unclosed or malicious markup, because no regular
expression scans text twice. Each quantifier is bounded, is possessive, or stops at the character at
which the next match starts.
"""

import html
import re
from collections.abc import Iterator

_HIDDEN = re.compile(
    r"<(/?)(ref|math|chem|ce|gallery|timeline|syntaxhighlight|source|score|hiero|imagemap|graph"
    r"|mapframe|templatedata|templatestyles|style|script)\b([^<>]*+)>",
    re.IGNORECASE,
)
_BRACES = re.compile(
    r"(?P<open>\{\{+)|(?P<close>\}\}+)"
    r"|^[ \t:*#]*+(?P<table>\{\|)|^[ \t]*+(?P<end>\|\})(?!\})",
    re.MULTILINE,
)
_BRACKETS = re.compile(r"\[\[|\]\]")
_EXTERNAL = re.compile(
    r"\[(?:https?:|ftp:|mailto:|//)[^\s\[\]]*+[ \t]*+([^\[\]\n]*+)\]", re.IGNORECASE
)
_MEDIA = re.compile(
    r"\.(?:jpe?g|png|svg|gif|tiff?|webp|xcf|pdf|djvu|og[gav]|opus|webm|midi?|mp3|mp4|wav|flac|stl)"
    r"\s*\Z",
    re.IGNORECASE,
)
_SPACING_TAG = re.compile(r"</?(?:br|p|div|hr|li|tr|td|th|blockquote)\b[^<>]*+>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*+>")
_QUOTES = re.compile(r"''++")
_SWITCH = re.compile(r"__[^\W_]{1,40}__")
_ENTITY = re.compile(r"&#?\w{1,32};")

_LINK_DEPTH_MAX = 8
"""Nested links are parsed down to this level (captions need two); deeper ones are left as text."""


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield (heading, wikitext) of each section. Text before the first heading has heading ""."""
    heading = ""
    body: list[str] = []
    for line in _without_comments(text).split("\n"):
        title = _heading(line)
        if title is None:
            body.append(line)
        else:
            yield heading, "\n".join(body)
            heading, body = title, []
    yield heading, "\n".join(body)


def clean(wikitext: str) -> str:
    """Return the text without markup, templates, tables, references, files and categories."""
    text = _without_comments(wikitext)
    text = _without_hidden(text)
    text = _without_braces(text)
    text = _with_link_labels(text)
    text = _EXTERNAL.sub(r"\1", text)
    text = _SPACING_TAG.sub(" ", text)
    text = _TAG.sub("", text)
    text = _QUOTES.sub("", text)
    text = _SWITCH.sub("", text)
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    return "\n".join(filter(None, map(_plain_line, text.split("\n"))))


def _heading(line: str) -> str | None:
    line = line.rstrip()
    if not (line.startswith("==") and line.endswith("==")):
        return None
    before = len(line) - len(line.lstrip("="))
    after = len(line) - len(line.rstrip("="))
    level = min(before, after, 6)
    title = line[level:-level].strip()
    return title or None


def _plain_line(line: str) -> str:
    """Strip list marks and surplus space from a line; empty for a line left over from a table."""
    line = _heading(line) or line.lstrip("*#:; \t")
    if line.startswith(("|", "{|", "----")):
        line = line.lstrip("-") if line.startswith("-") else ""
    return " ".join(line.split())


def _without_comments(text: str) -> str:
    pieces: list[str] = []
    end = 0
    while (start := text.find("<!--", end)) >= 0:
        pieces.append(text[end:start])
        close = text.find("-->", start + 4)
        end = len(text) if close < 0 else close + 3
    pieces.append(text[end:])
    return "".join(pieces)


def _without_hidden(text: str) -> str:
    """Drop elements whose content is not prose. An opening tag without a closing one stays."""
    tags = list(_HIDDEN.finditer(text))
    last_close = {tag[2].lower(): tag.start() for tag in tags if tag[1]}
    pieces: list[str] = []
    end = 0
    inside = ""
    for tag in tags:
        name = tag[2].lower()
        if inside:
            if tag[1] and name == inside:
                end, inside = tag.end(), ""
        elif tag[3].endswith("/"):
            pieces.append(text[end : tag.start()])
            end = tag.end()
        elif not tag[1] and last_close.get(name, -1) > tag.start():
            pieces.append(text[end : tag.start()])
            inside = name
    pieces.append(text[end:])
    return "".join(pieces)


def _without_braces(text: str) -> str:
    """Drop templates `{{..}}`, parameters `{{{..}}}` and tables `{|..|}`, however they nest."""
    opened: list[tuple[str, int]] = []  # (kind, start) of each open template or table
    open_counts = {"template": 0, "table": 0}  # how many of each kind are open
    dropped_spans: list[tuple[int, int]] = []  # (start, end) of text to drop: in order, disjoint

    def close(kind: str, end: int) -> None:
        if not open_counts[kind]:
            return
        closed = ""
        while closed != kind:  # also drops inner elements without a closing mark
            closed, start = opened.pop()
            open_counts[closed] -= 1
        while dropped_spans and dropped_spans[-1][0] >= start:
            dropped_spans.pop()
        dropped_spans.append((start, end))

    for token in _BRACES.finditer(text):
        kind = "template" if token.lastgroup in ("open", "close") else "table"
        # Braces in a row form as many pairs as fit: {{{1}}} is one, {{a|{{b}}}} ends with two.
        pairs = len(token[token.lastgroup or 0]) // 2
        for _ in range(pairs):
            if token.lastgroup in ("open", "table"):
                opened.append((kind, token.start()))
                open_counts[kind] += 1
            else:
                close(kind, token.end())

    pieces: list[str] = []
    end = 0
    for start, stop in dropped_spans:
        pieces.append(text[end:start])
        end = stop
    pieces.append(text[end:])
    return "".join(pieces).replace("{{", " ").replace("}}", " ")


def _with_link_labels(text: str) -> str:
    """Replace each [[link]] with the text that a reader sees."""
    parts: list[list[str]] = [[]]  # pieces of the text so far, and of each link that is open
    link_starts: list[int] = []
    end = 0
    for token in _BRACKETS.finditer(text):
        parts[-1].append(text[end : token.start()])
        end = token.end()
        if token[0] == "[[" and len(link_starts) < _LINK_DEPTH_MAX:
            parts.append([])
            link_starts.append(token.start())
        elif token[0] == "]]" and link_starts:
            start = link_starts.pop()
            link = "".join(parts.pop())
            neighbours = text[max(start - 1, 0) : start], text[end : end + 1]
            is_alone = neighbours[0] in "\n]" and neighbours[1] in "\n["
            parts[-1].append(_label(link, is_alone))
    parts[-1].append(text[end:])
    return "".join(piece for level in parts for piece in level)


def _label(link: str, is_alone: bool) -> str:
    target, pipe, label = link.partition("|")
    if "\n" in target:
        return link  # the brackets do not mark a link
    if target.startswith(":"):
        return label or target[1:]
    prefix, colon, page = target.partition(":")
    if prefix and colon:
        # Drop files, and links that are alone on their line, such as categories. Keep another link
        # only if it has a label or is a title, such as "2001: A Space Odyssey".
        is_prose = page.startswith(" ") or pipe
        if is_alone or not is_prose or _MEDIA.search(target):
            return ""
    return label or target.lstrip("#")
