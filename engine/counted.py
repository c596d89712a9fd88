"""Numbers of things, said to people.

>>> counted(1, "bad record"), counted(2, "bad record")
('1 bad record', '2 bad records')
"""

from __future__ import annotations


def counted(number: float, what: str) -> str:
    """A number and a noun; `what`: the noun in the singular, which has a plural with an s."""
    return f"{number} {what}{'s' * (number != 1)}"
