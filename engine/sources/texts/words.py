"""The words of a document: one definition for the index and for the statistics of a corpus.

>>> words({"id": 7, "title": "Cats", "text": "A cat eats; cats eat."})
['cats', 'a', 'cat', 'eats', 'cats', 'eat']
"""

import re
from collections.abc import Mapping

_find = re.compile(r"\w+").findall
"""Letters, digits and underscores of any script (Unicode)."""


def words(document: Mapping[str, object]) -> list[str]:
    """The words of a document, in order and in lower case."""
    return _find(document_text(document).lower())


def document_text(document: Mapping[str, object]) -> str:
    """The text from which words are taken: the title, if there is one, and the text."""
    text, title = document["text"], document.get("title")
    return f"{title}\n{text}" if title else str(text)
