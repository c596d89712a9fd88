"""Whether a word is another one but for one letter: inserted, left out, or exchanged.

>>> [word for word in ("cat", "cats", "at", "cut", "act") if is_near("cat", word)]
['cat', 'cats', 'at', 'cut']
"""

from __future__ import annotations

from itertools import takewhile
from operator import eq


def is_near(word: str, other: str) -> bool:
    """Whether the Levenshtein distance of two words is at most 1."""
    if len(word) > len(other):
        word, other = other, word
    if len(other) > len(word) + 1:
        return False
    same = sum(takewhile(bool, map(eq, word, other)))
    return word[same + (len(word) == len(other)) :] == other[same + 1 :]
