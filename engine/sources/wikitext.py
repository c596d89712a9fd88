"""Plain text from MediaWiki markup, good enough to count and to index words; no rendering.

    >>> clean("The '''[[Felis|cat]]'''{{efn|a pet}} eats [[mice]].<ref>Own work</ref>")
    'The cat eats mice.'
    >>> [heading for heading, _ in sections("A cat.\\n== Food ==\\nMice.")]
    ['', 'Food']

Independent of the language: files, categories and links to other wikis are recognised by their form
(a colon, a file ending, alone on a line), not by the names of namespaces.

Cost: each pass is linear in the text, even for unclosed or malicious markup. To ensure this, no
regular expression scans text twice: quantifiers are bounded, possessive, or end at the character at
which the next match begins.
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
    """Yield (heading, wikitext) of each section; the heading of text before the first one is ""."""
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
    text = _with_labels_of_links(text)
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
    kept: list[str] = []
    end = 0
    while (start := text.find("<!--", end)) >= 0:
        kept.append(text[end:start])
        close = text.find("-->", start + 4)
        end = len(text) if close < 0 else close + 3
    kept.append(text[end:])
    return "".join(kept)


def _without_hidden(text: str) -> str:
    """Drop elements whose content is not prose. An opening tag without a closing one stays."""
    tags = list(_HIDDEN.finditer(text))
    last_close = {tag[2].lower(): tag.start() for tag in tags if tag[1]}
    kept: list[str] = []
    end = 0
    inside = ""
    for tag in tags:
        name = tag[2].lower()
        if inside:
            if tag[1] and name == inside:
                end, inside = tag.end(), ""
        elif tag[3].endswith("/"):
            kept.append(text[end : tag.start()])
            end = tag.end()
        elif not tag[1] and last_close.get(name, -1) > tag.start():
            kept.append(text[end : tag.start()])
            inside = name
    kept.append(text[end:])
    return "".join(kept)


def _without_braces(text: str) -> str:
    """Drop templates `{{..}}`, parameters `{{{..}}}` and tables `{|..|}`, however they nest."""
    opened: list[tuple[str, int]] = []  # (kind, start) of each open template or table
    waiting = {"template": 0, "table": 0}  # how many of each kind are open
    gaps: list[tuple[int, int]] = []  # (start, end) of the text to drop: in order, disjoint

    def close(kind: str, end: int) -> None:
        if not waiting[kind]:
            return
        closed = ""
        while closed != kind:  # also drops inner ones that have no closing mark
            closed, start = opened.pop()
            waiting[closed] -= 1
        while gaps and gaps[-1][0] >= start:
            gaps.pop()
        gaps.append((start, end))

    for token in _BRACES.finditer(text):
        kind = "template" if token.lastgroup in ("open", "close") else "table"
        # Braces in a row form as many pairs as fit: {{{1}}} is one, {{a|{{b}}}} ends with two.
        pairs = len(token[token.lastgroup or 0]) // 2
        for _ in range(pairs):
            if token.lastgroup in ("open", "table"):
                opened.append((kind, token.start()))
                waiting[kind] += 1
            else:
                close(kind, token.end())

    kept: list[str] = []
    end = 0
    for start, stop in gaps:
        kept.append(text[end:start])
        end = stop
    kept.append(text[end:])
    return "".join(kept).replace("{{", " ").replace("}}", " ")


def _with_labels_of_links(text: str) -> str:
    """Replace each [[link]] by the text that a reader sees."""
    parts: list[list[str]] = [[]]  # pieces of the text so far, and of each link that is open
    begins: list[int] = []
    end = 0
    for token in _BRACKETS.finditer(text):
        parts[-1].append(text[end : token.start()])
        end = token.end()
        if token[0] == "[[" and len(begins) < _LINK_DEPTH_MAX:
            parts.append([])
            begins.append(token.start())
        elif token[0] == "]]" and begins:
            start = begins.pop()
            link = "".join(parts.pop())
            around = text[max(start - 1, 0) : start], text[end : end + 1]
            is_alone = around[0] in "\n]" and around[1] in "\n["
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
        # Namespaces and other wikis, but not titles such as "2001: A Space Odyssey".
        is_title = page.startswith(" ") or pipe
        if is_alone or not is_title or _MEDIA.search(target):
            return ""
    return label or target.lstrip("#")
