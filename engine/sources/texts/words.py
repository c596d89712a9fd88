"""The words of a document: one definition for the index, the benchmark's floor, and the statistics
of a corpus.

>>> words({"id": 7, "title": "Cats", "text": "A cat eats; cats eat."})
['cats', 'a', 'cat', 'eats', 'cats', 'eat']
>>> dict(positions_of_words("A cat eats a cat"))
{'a': [0, 3], 'cat': [1, 4], 'eats': [2]}
"""

import re
from collections import defaultdict
from collections.abc import Mapping

_find = re.compile(r"\w+").findall
"""Letters, digits and underscores of any script (Unicode)."""


def words(document: Mapping[str, object]) -> list[str]:
    """The words of a document, in order and in lower case."""
    return words_of_text(document_text(document))


def words_of_text(text: str) -> list[str]:
    """The words of a text, in order and in lower case."""
    return _find(text.lower())


def positions_of_words(text: str) -> dict[str, list[int]]:
    """Each word of a text, in order of first appearance, with its positions among all words."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(_find(text.lower())):
        found[word].append(position)
    return found


def document_text(document: Mapping[str, object]) -> str:
    """The text from which words are taken: the title, if there is one, and the text."""
    text, title = document["text"], document.get("title")
    return f"{title}\n{text}" if title else str(text)
