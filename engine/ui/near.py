"""Names that a user may have meant.

>>> did_you_mean("wordcount", ["word-count", "sums"])
" (did you mean 'word-count'?)"
>>> did_you_mean("a", ["word-count"])
''
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question to be added to the error about an unknown name; "" if none is near."""
    near = get_close_matches(word.replace("_", "-"), list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""
