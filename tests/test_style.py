"""The words of the code base: plain English in docstrings, comments and messages."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.test_structure import ROOT, SOURCE

PATTERNS = (
    r"\b[Ww]hoever\b",
    r"\b([Nn]obody|[Ss]omebody)\b",
    r"(?:^|[.:;] )Who\b(?!.*\?)",
    r"(?:^|[.;] )What (?:is|was|has|comes)\b(?!.*\?)",
    r"\b(?:is|are|was|were|be) told\b",
    r"\b(?:is|can be|was) had\b",
    r"\bof now\b",
    r"\b(?:goes|go|went|gone) on\b",
    r"\bwork(?:s|ed)? off\b",
    r"\bgood order\b",
    r"\b(?:made|makes|make|give|gives) way\b",
    r"\b[Ll]ately\b",
    r"\b(?:begin|begins|made|making) anew\b",
    r"\b[Mm]end(?:s|ed)?\b",
    r"(?<![Tt]here )\bis no (?!longer\b|more\b)[a-z]",
)
"""Phrases that a reader has to read twice. Each has a standard term or a verb of its own."""

PHRASE = re.compile("|".join(PATTERNS), re.MULTILINE)

ALLOWED: dict[str, str] = {}
"""File -> the phrase that it may use; a comment beside the entry gives the reason."""

TEXT = (tokenize.STRING, tokenize.COMMENT)


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each string and comment of a file that has such a phrase at all."""
    source = path.read_text()
    if not PHRASE.search(source):  # tokens are slow to find
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in TEXT:
            yield token.start[0], token.string


def test_texts_are_plain_english() -> None:
    found = []
    for path in SOURCE:
        name = str(path.relative_to(ROOT))
        for line, text in _texts(path):
            for match in PHRASE.finditer(text):
                if ALLOWED.get(name) != match[0]:
                    at = line + text.count("\n", 0, match.start())
                    found.append(f"{name}:{at}: {match[0]}")
    assert not found, "\n".join(found)
