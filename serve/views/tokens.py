"""Tokens: times as opaque strings for clients. All have one length and sort like the times.

The token of T identifies the state after all outputs below T. A write with label time t gets the
token of t + 1, the smallest T as of which a read sees the write.

    >>> token_of(0), token_of(727), token_of(1_790_000_000_000_000)
    ('00000000000000', '00000000000pqs', '001jvzvd2br00c')
    >>> time_of("00000000000pqs")
    727

The last letter is a check digit: it detects one wrong letter, or two swapped letters.
"""

from __future__ import annotations

from driftline.engine.labels import INFINITY
from driftline.serve.errors import BadToken

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
"""The digits in byte order; i, l, o and u are left out, since they are easily misread."""

_DIGITS = {letter: digit for digit, letter in enumerate(_LETTERS)}

_LENGTH = 13
"""Number of letters for the 63 bits of a time, 5 bits each; the check digit follows."""


def token_of(time: int) -> str:
    """Return the token of a T. Precondition: T is in [0, INFINITY]."""
    digits = [time >> 5 * place & 31 for place in reversed(range(_LENGTH))]
    return "".join(map(_LETTERS.__getitem__, (*digits, _check(digits))))


def time_of(token: str) -> int:
    """Return the T of a token. Raises BadToken."""
    digits = [_DIGITS.get(letter, -1) for letter in token]
    time = 0
    for digit in digits[:-1]:
        time = time << 5 | digit
    is_whole = len(digits) == _LENGTH + 1 and min(digits) >= 0
    if not is_whole or digits[-1] != _check(digits[:-1]) or time > INFINITY:
        shown = token if len(token) <= 40 else f"{token[:40]}..."
        raise BadToken(
            f"{shown!r} is not a label, or it was changed. A label is a text of {_LENGTH + 1} "
            "letters and digits, from the answer to a write or a read. Copy it unchanged"
        )
    return time


def _check(digits: list[int]) -> int:
    """Return the check digit.

    The digits are the coefficients of a polynomial over GF(32), evaluated at a generator of the
    field. So each position has a different weight. Integers modulo 32 would detect fewer errors,
    since half of them are zero divisors.
    """
    check = 0
    for digit in digits:
        check = (check ^ digit) << 1
        if check & 0b100000:
            check ^= 0b100101
    return check
