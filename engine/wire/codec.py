"""Wire format: msgpack, and columns for similar rows.

Values that can be sent to another process and stored: None, bool, int (64 bit), float, str,
bytes, sequences and dicts of these. Sequences always come back as tuples, and instances of
subclasses as instances of their base (a NamedTuple as a tuple, an IntEnum as an int). A function
that decodes msgpack itself may output msgpack.ExtType and msgpack.Timestamp, which come back
unchanged. Every value that passes a shuffle or a sink is encoded, even if sender and receiver are
the same node. So the types that a user function receives do not depend on the number of nodes.
Nothing is ever unpickled or evaluated.

`encode_rows` turns rows of equal width into columns, and writes a constant column as one value. So
in a frame with the words of one document, the document's label and id take a few bytes in total,
not a few bytes per word. Encoding and decoding run at C speed.

    >>> encode_rows([(7, 0, 1), (7, 0, 2)])
    (2, 3, [7, 0, (1, 2)])
    >>> decode_rows((2, 3, [7, 0, (1, 2)]))
    [(7, 0, 1), (7, 0, 2)]
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import countOf
from typing import TypeGuard, TypeVar

import msgpack

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.texts import describe_exception, reraise_interrupt, text_of

Columns = tuple[int, int, Sequence[object]]
"""(number of rows, bit mask of constant columns, columns). With the mask PLAIN, the third value is
the rows."""

PLAIN = -1
"""Mask in `Columns` that contain rows, not columns."""

MAX_ROWS = 2**24
"""Maximum number of rows in a batch, so that a malicious message cannot cause a huge allocation."""

PACKER_BYTES_MAX = 1 << 20
"""Size in bytes of the largest value whose packer is reused: a packer keeps its buffer."""


class PackerPool:
    """Reusable packers of msgpack; `default` converts values of other types.

    A packer encodes one value at a time, but may run Python code of the value (`items` of a
    `MapState` packs keys), and meanwhile other threads may pack.
    """

    def __init__(self, default: Callable[[object], object] | None = None) -> None:
        self._default = default
        self._idle: list[msgpack.Packer] = []

    def pack(self, value: object) -> bytes:
        """Encode a value. Raises what msgpack, or a method of the value, raises."""
        try:
            packer = self._idle.pop()
        except IndexError:
            packer = msgpack.Packer(default=self._default, autoreset=True, use_bin_type=True)
        try:
            data: bytes = packer.pack(value)
        except BaseException:
            packer.reset()
            self._idle.append(packer)
            raise
        if len(data) <= PACKER_BYTES_MAX:
            self._idle.append(packer)
        return data


_packers = PackerPool()


def _refuse_extension(code: int, data: bytes) -> object:
    raise ValueError(f"extension type {code}")


def pack(value: object) -> bytes:
    """Encode a value. Raises PayloadError for a value that cannot be encoded.

    Thread-safe and reentrant: methods of the value may call `pack` while the value is encoded.
    """
    try:
        return _packers.pack(value)
    except BaseException as error:  # methods of a user's class may raise anything
        reraise_interrupt(error)
        problem = why_unencodable(value) or f"cannot be sent or stored: {text_of(error)}"
        raise PayloadError(problem) from None


def unpack(data: bytes) -> object:
    """Decode the result of `pack`. Raises MalformedMessage if `data` is not exactly one value."""
    try:
        value: object = msgpack.unpackb(
            data, use_list=False, strict_map_key=False, ext_hook=msgpack.ExtType
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise MalformedMessage(f"not msgpack: {error or type(error).__name__}") from None
    return value


def unpack_foreign(data: bytes) -> object:
    """Decode bytes of an untrusted sender, in time proportional to the number of bytes.

    An attacker can construct sequences with equal hashes: a dict with 10,000 such keys takes a
    second. So this function rejects sequences as keys. Hashes of texts and bytes depend on a
    secret of this process, and at most about 40 keys of other types can share a hash. A msgpack
    timestamp becomes a datetime, which `pack` rejects.
    Raises MalformedMessage.
    """
    try:
        return msgpack.unpackb(data, use_list=False, ext_hook=_refuse_extension, timestamp=3)
    except (ValueError, *_UNDECODABLE):
        pass  # malformed or, rarely, valid with keys that are neither text nor bytes
    try:
        value: object = msgpack.unpackb(
            data,
            use_list=False,
            strict_map_key=False,
            ext_hook=_refuse_extension,
            object_pairs_hook=_map_without_sequences_as_keys,
            timestamp=3,
        )
    except (ValueError, *_UNDECODABLE) as error:
        raise MalformedMessage(f"not msgpack: {error or type(error).__name__}") from None
    return value


_UNDECODABLE = (
    TypeError,
    OverflowError,
    msgpack.exceptions.UnpackException,
    RecursionError,
)


def _map_without_sequences_as_keys(pairs: list[tuple[object, object]]) -> dict[object, object]:
    if tuple in {type(key) for key, _ in pairs}:
        raise ValueError("a map with keys that are sequences")
    return dict(pairs)


def unpack_all(
    data: bytes, ext_hook: Callable[[int, bytes], object] = _refuse_extension
) -> Iterator[object]:
    """Decode consecutive packed values.

    `ext_hook` decodes msgpack's extension types; the default rejects them. Raises MalformedMessage.
    """
    unpacker = msgpack.Unpacker(
        use_list=False, strict_map_key=False, ext_hook=ext_hook, max_buffer_size=len(data)
    )
    unpacker.feed(data)
    while unpacker.tell() < len(data):
        try:
            yield unpacker.unpack()
        except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
            raise MalformedMessage(f"not msgpack: {error or type(error).__name__}") from None


def round_trip(value: object) -> object:
    """Return the value that a receiver decodes after a shuffle.

    Raises PayloadError, MalformedMessage.
    """
    return unpack_rows(pack_rows([value]))[0]


def canonical_bytes(value: object) -> bytes:
    """Return bytes that differ where values differ, even for 1, 1.0 and True, which are equal.

    This is the encoding of the value, or the `repr` of a value that cannot be encoded.
    """
    try:
        return pack(value)
    except PayloadError as error:
        try:
            return repr(value).encode(errors="replace")
        except BaseException as another:  # nested too deeply even for repr
            reraise_interrupt(another)
            return str(error).encode()


def encode_rows(rows: Sequence[object], of_integers: bool = False) -> Columns:
    """Encode rows: as columns if all are sequences of one width, otherwise unchanged.

    `of_integers`: the rows are known to be tuples of integers, which saves checks. A shuffle turns
    lists into tuples, but the encoded bytes stay the same.
    """
    count = len(rows)
    if count < 2:
        return count, PLAIN, rows
    if not of_integers and not _all_tuples(rows):
        if not all(map(_is_sequence, dict.fromkeys(map(type, rows)))):
            return count, PLAIN, rows
        rows = [tuple(row) for row in rows if isinstance(row, (tuple, list))]
    return _transpose(rows, of_integers)  # type: ignore[arg-type]  # the rows are tuples by now


def _is_sequence(kind: type) -> bool:
    return issubclass(kind, (tuple, list)) and not issubclass(kind, msgpack.ExtType)


def _all_tuples(rows: Sequence[object]) -> TypeGuard[Sequence[tuple[object, ...]]]:
    return countOf(map(type, rows), tuple) == len(rows)


def _transpose(rows: Sequence[tuple[object, ...]], of_integers: bool) -> Columns:
    count = len(rows)
    try:
        columns: list[tuple[object, ...]] = list(zip(*rows, strict=True))
    except ValueError:  # the rows differ in width
        return count, PLAIN, rows
    return encode_columns(count, columns, of_integers) if columns else (count, PLAIN, rows)


def encode_columns(
    count: int, columns: Sequence[Sequence[object]], of_integers: bool = False
) -> Columns:
    """Encode `count` rows from their columns; `count` is at least 1."""
    encoded: list[object] = list(columns)
    mask = 0
    for i, column in enumerate(columns):
        if _is_constant(column, count, of_integers):
            encoded[i] = column[0]
            mask |= 1 << i
    return count, mask, encoded


def _is_constant(column: Sequence[object], count: int, of_integers: bool) -> bool:
    """Return whether one value can replace the column. Equality is not enough: 1 == 1.0."""
    first_value, last_value = column[0], column[-1]
    kind = type(first_value)
    if of_integers:
        return first_value == last_value and column.count(first_value) == count
    if kind is not str and (kind is bool or not isinstance(first_value, (str, int))):
        return False
    if kind is type(last_value) and kind in (str, int) and first_value != last_value:
        return False
    kinds = set(map(type, column))
    if len(kinds) > 1 or kind not in (str, int):  # a subclass may define its own equality
        if all(map(_is_int, kinds)):
            column = [int.__int__(value) for value in column if isinstance(value, int)]
        elif all(issubclass(kind, str) for kind in kinds):
            column = [str.__str__(value) for value in column if isinstance(value, str)]
        else:
            return False
    return column.count(column[0]) == count


def _is_int(kind: type) -> bool:
    return issubclass(kind, int) and kind is not bool


def checked_columns(encoded: object) -> Columns:
    """Check the outer shape of received `Columns`, but not the columns themselves.

    Raises MalformedMessage.
    """
    if isinstance(encoded, tuple) and len(encoded) == 3:
        count, mask, columns = encoded
        if type(count) is int and type(mask) is int and isinstance(columns, (tuple, list)):
            return count, mask, columns
    raise MalformedMessage("not a batch of columns")


def decode_rows(encoded: object) -> list[object]:
    """Decode the result of `encode_rows`. Raises MalformedMessage for anything else."""
    count, mask, columns = checked_columns(encoded)
    if count > MAX_ROWS:
        raise MalformedMessage(f"{count} rows in one batch, more than {MAX_ROWS}")
    try:
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
        raise MalformedMessage(f"{len(rows)} rows in a batch of {count}")
    return rows


def pack_rows(rows: Sequence[object]) -> bytes:
    """Encode rows to bytes, in the form of `encode_rows`. Raises PayloadError."""
    try:
        return pack_nested(encode_rows(rows))
    except BaseException as error:  # comparing values of foreign types may raise anything
        reraise_interrupt(error)
        raise PayloadError(next(filter(None, map(why_unencodable, rows)), text_of(error))) from None


def pack_payload(value: object) -> bytes:
    """Encode a payload to bytes for `joined_rows`. Raises PayloadError."""
    try:
        return pack_nested([[value]])[2:]
    except PayloadError as error:
        raise PayloadError(why_unencodable(value) or str(error)) from None


def joined_rows(payloads: Sequence[bytes]) -> bytes:
    """Join the results of `pack_payload` to bytes that `unpack_rows` decodes."""
    count = len(payloads)
    packed = pack((count, PLAIN, (None,) * count))
    head = packed[: len(packed) - count]  # each None is one byte
    return b"".join((head, *payloads))


def pack_nested(columns: Sequence[object]) -> bytes:
    """Encode like `pack`, but leave room for three more nesting levels. Raises PayloadError.

    The packer accepts one level more than the unpacker. Besides, rows and states
    (`engine.state.values.freeze`) nest a value at different levels. A value that this function
    accepts can be decoded from both.
    """
    return pack([[[columns]]])[3:]


def unpack_rows(data: bytes) -> list[object]:
    """Decode the result of `pack_rows`. Raises MalformedMessage for anything else."""
    return decode_rows(unpack(data))


NESTING_MAX = 1000
"""Approximate maximum depth of nested sequences and dicts in a value."""

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""The range of integers in the wire format."""

LARGE_LEVEL = 1000
"""Number of values above which `levels_of` omits repeated objects from a level."""

HELP = "use None, bool, int of 64 bits, float, str, bytes, and tuples, lists and dicts of these"


def is_unicode(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8, that is, has no lone surrogate."""
    try:
        return str.isascii(text) or bool(str.encode(text))
    except UnicodeEncodeError:
        return False


T = TypeVar("T")

ATOMS = frozenset((type(None), bool, int, float, str, bytes))
"""Types of the wire format whose values contain no other values and are immutable."""


def is_a(value: object, kind: type[T]) -> TypeGuard[T]:
    """Check a type as `isinstance` does, but without user code such as a `__class__` property."""
    return issubclass(type(value), kind)


def all_have_types(allowed: frozenset[type], values: Sequence[object]) -> bool:
    """Return whether all values, and all values in tuples at any level, have an allowed type."""
    while True:
        kinds = {*map(type, values)}
        if not kinds <= allowed:
            return False
        if tuple not in kinds:
            return True
        values = [*chain.from_iterable(_tuples(kinds, values))]


def _tuples(kinds: set[type], values: Sequence[object]) -> Iterable[Iterable[object]]:
    """Return the tuples among the values; `kinds`: the types of the values, including tuple."""
    if len(kinds) == 1:
        return values  # type: ignore[return-value]
    return [value for value in values if isinstance(value, tuple)]


def levels_of(values: Iterable[object], levels_max: int) -> Iterator[Iterable[object]]:
    """Yield the values, then the values in them, and so on: at most `levels_max` levels.

    No user code runs: this reads dicts and sequences with the methods of Python's own types. A
    value may contain itself, so large levels omit repeated objects.
    """
    level = values
    for _ in range(levels_max):
        yield level
        inner: list[object] = []
        for value in level:
            if type(value) in ATOMS:  # most values: cheaper than the checks below
                continue
            if is_a(value, dict):
                inner += dict.keys(value)
                inner += dict.values(value)
            elif is_a(value, list):
                inner += list.__iter__(value)
            elif is_a(value, tuple):
                inner += tuple.__iter__(value)
        if not inner:
            return
        level = (
            {id(value): value for value in inner}.values() if len(inner) > LARGE_LEVEL else inner
        )


def is_deeper(value: object, levels: int) -> bool:
    """Return whether a value has more than `levels` nested levels of sequences and dicts."""
    return any(number > levels for number, _ in enumerate(levels_of((value,), levels + 2)))


def why_unencodable(value: object) -> str:
    """Return why a value cannot be encoded; "" if no reason is found.

    The text is the same in every process and replay.
    """
    try:
        problem = _problem(value, "", 0)
    except RecursionError:
        problem = f"it is nested more than {NESTING_MAX} deep"
    except BaseException as error:  # methods of a user's class may raise anything
        reraise_interrupt(error)
        problem = f"reading it raises {describe_exception(error)}"
    if not problem:
        return ""
    kind = type(value).__name__
    reason = "" if problem == f"it is of type {kind}" else f": {problem}"
    return f"a value of type {kind} cannot be sent or stored{reason}; {HELP}"


def _problem(value: object, at: str, level: int) -> str:
    """Return which part of a value cannot be encoded, and why; "" if the whole value can.

    `at`: path from the user's value to this one, such as `[0].key`; `level`: its nesting level.
    """
    where = f"at {at} is " if at else "it is "
    if level > NESTING_MAX:
        return f"it is nested more than {NESTING_MAX} deep"
    if isinstance(value, dict):
        for key, inner in value.items():
            problem = _problem(key, f"{at}.key", level + 1) or _problem(
                inner, f"{at}[{key!r:.40}]", level + 1
            )
            if problem:
                return problem
    elif isinstance(value, (tuple, list)):
        for i, inner in enumerate(value):
            if problem := _problem(inner, f"{at}[{i}]", level + 1):
                return problem
    elif isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            return f"{where}an int of more than 64 bits"
    elif isinstance(value, str):
        if not is_unicode(value):
            return f"{where}text with a lone surrogate, which UTF-8 cannot encode"
    elif value is not None and not isinstance(value, (float, bytes, bytearray, memoryview)):
        return f"{where}of type {type(value).__name__}"
    return ""


# Limits of a record, checked where it enters and before it is acknowledged. Once acknowledged, a
# record over a limit would make every later start of the run fail.

RECORD_BYTES_MAX = 1 << 24
"""Maximum size of an encoded record, in bytes."""

RECORD_DEPTH_MAX = 100
"""Maximum nesting of sequences and dicts in a record; functions may nest it further."""


def why_invalid_record(payload: object, size: int, *, of_producer: bool = False) -> str:
    """Return why a record is invalid; "" if it is valid. `size`: its bytes in the wire format.

    `of_producer`: reject dicts with sequences as keys, too, because a front decodes records of
    producers with `unpack_foreign`. Cost: one pass over the items of the record.
    """
    if size > RECORD_BYTES_MAX:
        return f"it has {size} bytes; a record has at most {RECORD_BYTES_MAX}"
    for depth, level in enumerate(levels_of((payload,), RECORD_DEPTH_MAX + 1)):
        if ATOMS.issuperset(map(type, level)):
            break
        if depth == RECORD_DEPTH_MAX:
            return f"it is nested more than {RECORD_DEPTH_MAX} deep"
        if of_producer and any(is_a(value, dict) and _has_sequences(value) for value in level):
            return "it has a dict with keys that are sequences; a producer must not send them"
    return ""


def _has_sequences(keys: Iterable[object]) -> bool:
    return not ATOMS.issuperset(map(type, keys)) and any(isinstance(key, tuple) for key in keys)
