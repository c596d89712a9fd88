"""Numbers of things, and long texts, said to people.

>>> counted(1, "bad record"), counted(2, "bad record")
('1 bad record', '2 bad records')
>>> beginning("to be or not to be", 5)
'to be… (18 characters)'
>>> size_in_words(0), size_in_words(4200), size_in_words(33_554_432)
('0 kB', '4 kB', '33.6 MB')
"""

from __future__ import annotations


def counted(number: float, what: str) -> str:
    """A number and a noun; `what`: the noun in the singular, which has a plural with an s."""
    return f"{number} {what}{'s' * (number != 1)}"


def size_in_words(size: int) -> str:
    """A number of bytes."""
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def beginning(text: str, most: int) -> str:
    """A text, or the beginning of one that has more characters than `most`, which then says so."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
