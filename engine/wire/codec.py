"""The wire format: msgpack, and columns for rows that are alike.

What can travel and be stored: None, bool, int (64 bit), float, str, bytes, sequences and dicts of
these. Sequences always come back as tuples, and instances of subclasses as what they derive from
(a NamedTuple as a tuple, an IntEnum as an int): every value that passes a shuffle or a sink passes
this format, also when sender and receiver are the same node, so that a user function sees the
same types wherever its input came from. Nothing is ever unpickled or evaluated.

`encode_rows` turns rows of equal width into columns and writes a column whose value never changes
once. In a frame with the children of one document the document's label and its id therefore
cost a few bytes, not a few bytes per word, and both directions run at the speed of C.

    >>> encode_rows([(7, 0, 1), (7, 0, 2)])
    (2, 3, [7, 0, (1, 2)])
    >>> decode_rows((2, 3, [7, 0, (1, 2)]))
    [(7, 0, 1), (7, 0, 2)]
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import countOf
from typing import TypeGuard

import msgpack

from driftline.engine.errors import MalformedMessage, PayloadError

Columns = tuple[int, int, Sequence[object]]
"""(number of rows, bit mask of constant columns, columns); mask PLAIN: the rows themselves."""

PLAIN = -1

MAX_ROWS = 2**24
"""Largest batch that is accepted: a foreign message must not make us allocate without bound."""

_packer = msgpack.Packer(autoreset=True, use_bin_type=True)
_inner_packer = msgpack.Packer(autoreset=True, use_bin_type=True)


def _refuse_extension(code: int, data: bytes) -> object:
    raise ValueError(f"extension type {code}")


def pack(value: object) -> bytes:
    """Encode a value. Raises PayloadError for a type that cannot travel."""
    try:
        data: bytes = _packer.pack(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        _packer.reset()
        raise PayloadError(why_not(value) or f"cannot travel or be stored: {error}") from None
    return data


def unpack(data: bytes) -> object:
    """Decode what `pack` made. Raises MalformedMessage for anything else."""
    try:
        value: object = msgpack.unpackb(
            data, use_list=False, strict_map_key=False, ext_hook=_refuse_extension
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise MalformedMessage(f"not msgpack: {error or type(error).__name__}") from None
    return value


def unpack_all(
    data: bytes, ext_hook: Callable[[int, bytes], object] = _refuse_extension
) -> Iterator[object]:
    """Decode any number of values that `pack` made, joined. Raises MalformedMessage."""
    unpacker = msgpack.Unpacker(
        use_list=False, strict_map_key=False, ext_hook=ext_hook, max_buffer_size=len(data)
    )
    unpacker.feed(data)
    while unpacker.tell() < len(data):
        try:
            yield unpacker.unpack()
        except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
            raise MalformedMessage(f"not msgpack: {error or type(error).__name__}") from None


def travelled(value: object) -> object:
    """The value as it is on the other side of a shuffle. Raises PayloadError."""
    return unpack_rows(pack_rows([value]))[0]


def order_of(key: object) -> bytes:
    """What to order keys by. May be called while something is being packed."""
    data: bytes = _inner_packer.pack(key)
    return data


def exact(value: object) -> bytes:
    """What to compare values by: equal is not the same for 1, 1.0 and True.

    Its encoding; for a value that cannot travel, how it looks.
    """
    try:
        return pack(value)
    except PayloadError as error:
        try:
            return repr(value).encode(errors="replace")
        except Exception:  # nested too deep even for that
            return str(error).encode()


def encode_rows(rows: Sequence[object]) -> Columns:
    """Encode rows; sequences of one width become columns, anything else stays as it is.

    Values that are equal once they have travelled are encoded alike, lists and tuples, for example:
    nobody can tell from the bytes of rows whether they have travelled before.
    """
    count = len(rows)
    if count < 2:
        return count, PLAIN, rows
    if not _all_tuples(rows):
        if not all(issubclass(kind, (tuple, list)) for kind in dict.fromkeys(map(type, rows))):
            return count, PLAIN, rows
        rows = [tuple(row) for row in rows if isinstance(row, (tuple, list))]
    return _transpose(rows)  # type: ignore[arg-type]  # which are tuples by now


def encode_label_list(labels: Sequence[tuple[int, ...]]) -> Columns:
    """`encode_rows` for rows that are known to be tuples of integers."""
    if len(labels) < 2:
        return len(labels), PLAIN, labels
    return _transpose(labels, of_integers=True)


def _all_tuples(rows: Sequence[object]) -> TypeGuard[Sequence[tuple[object, ...]]]:
    return countOf(map(type, rows), tuple) == len(rows)


def _transpose(rows: Sequence[tuple[object, ...]], of_integers: bool = False) -> Columns:
    count = len(rows)
    try:
        columns: list[tuple[object, ...]] = list(zip(*rows, strict=True))
    except ValueError:  # not of one width
        return count, PLAIN, rows
    return encode_columns(count, columns, of_integers) if columns else (count, PLAIN, rows)


def encode_columns(
    count: int, columns: Sequence[Sequence[object]], of_integers: bool = False
) -> Columns:
    """`encode_rows` for rows that are columns already, of `count` values each, at least one."""
    written: list[object] = list(columns)
    mask = 0
    for i, column in enumerate(columns):
        if _is_constant(column, count, of_integers):
            written[i] = column[0]
            mask |= 1 << i
    return count, mask, written


def _is_constant(column: Sequence[object], count: int, of_integers: bool) -> bool:
    """Whether to write a column once. Equal is not the same: 1 == 1.0 == True, 0.0 == -0.0."""
    first, last = column[0], column[-1]
    kind = type(first)
    if of_integers:
        return first == last and column.count(first) == count
    if kind is not str and (kind is bool or not isinstance(first, (str, int))):
        return False
    if kind is type(last) and kind in (str, int) and first != last:
        return False
    kinds = set(map(type, column))
    if len(kinds) > 1 or kind not in (str, int):  # a subclass may have an equality of its own
        if all(map(_is_int, kinds)):
            column = [int.__int__(value) for value in column if isinstance(value, int)]
        elif all(issubclass(kind, str) for kind in kinds):
            column = [str.__str__(value) for value in column if isinstance(value, str)]
        else:
            return False
    return column.count(column[0]) == count


def _is_int(kind: type) -> bool:
    return issubclass(kind, int) and kind is not bool


def decode_rows(encoded: Columns) -> list[object]:
    """Decode `encode_rows`. Raises MalformedMessage if the parts do not fit together."""
    try:
        count, mask, columns = encoded
        if count > MAX_ROWS:
            raise MalformedMessage(f"{count} rows in one batch, more than {MAX_ROWS}")
        if mask == PLAIN:
            rows: list[object] = list(columns)
        else:
            rows = list(
                zip(
                    *[
                        repeat(column, count) if mask >> i & 1 else column
                        for i, column in enumerate(columns)
                    ],
                    strict=True,
                )
            )
    except (TypeError, ValueError) as error:
        raise MalformedMessage(f"columns do not fit: {error}") from None
    if len(rows) != count:
        raise MalformedMessage(f"{count} rows announced, {len(rows)} there")
    return rows


def pack_rows(rows: Sequence[object]) -> bytes:
    """Encode rows, as columns if they are alike. Raises PayloadError."""
    try:
        return pack_nested(encode_rows(rows))
    except Exception as error:  # also what comparing strange objects raises
        raise PayloadError(next(filter(None, map(why_not, rows)), str(error))) from None


def pack_nested(columns: Sequence[object]) -> bytes:
    """`pack`, but with room for three more levels: the packer takes one more than the unpacker,
    and values stand at different levels of rows and of states (`engine.state.values.frozen`)."""
    return pack([[[columns]]])[3:]


def unpack_rows(data: bytes) -> list[object]:
    """Decode `pack_rows`. Raises MalformedMessage for anything else."""
    return decode_rows(unpack(data))  # type: ignore[arg-type]  # which is checked there


NESTING_MAX = 1000
"""Levels of sequences and dicts in one another, about."""

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""The integers that the wire format has."""

HELP = "use None, bool, int of 64 bits, float, str, bytes, and tuples, lists and dicts of these"


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded: it has no lone surrogate."""
    try:
        return str.isascii(text) or bool(str.encode(text))
    except UnicodeEncodeError:
        return False


def why_not(value: object) -> str:
    """Why a value cannot travel; empty if it can. The same text in every process and replay."""
    try:
        found = _obstacle(value, "", 0)
    except RecursionError:
        found = f"it is nested more than {NESTING_MAX} deep"
    return f"a value of type {type(value).__name__} cannot travel or be stored: {found}; {HELP}" * (
        found != ""
    )


def _obstacle(value: object, at: str, level: int) -> str:
    """What is in the way, and where it is in the value."""
    where = f"at {at} is " if at else "it is "
    if level > NESTING_MAX:
        return f"it is nested more than {NESTING_MAX} deep"
    if isinstance(value, dict):
        for key, inner in value.items():
            found = _obstacle(key, f"{at}.key", level + 1) or _obstacle(
                inner, f"{at}[{key!r:.40}]", level + 1
            )
            if found:
                return found
    elif isinstance(value, (tuple, list)):
        for i, inner in enumerate(value):
            if found := _obstacle(inner, f"{at}[{i}]", level + 1):
                return found
    elif isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            return f"{where}an int of more than 64 bits"
    elif isinstance(value, str):
        if not is_unicode(value):
            return f"{where}text with a lone surrogate, which UTF-8 does not have"
    elif value is not None and not isinstance(value, (float, bytes, bytearray, memoryview)):
        return f"{where}of type {type(value).__name__}"
    return ""
