"""JSON from strangers, and for them.

>>> loads(b'{"a": 1, "a": 2}')
Traceback (most recent call last):
...
driftline.serve.errors.Refused: this is no JSON: the name 'a' is there twice
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from typing import NoReturn

from driftline.serve.errors import Refused

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def loads(data: bytes) -> object:
    """The value of a text of JSON. Raises Refused, also where programs read it differently."""
    try:
        return _decoder.decode(data.decode())
    except UnicodeDecodeError as error:
        raise Refused("invalid", f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise _no_json("it is nested too deep") from None
    except json.JSONDecodeError as error:
        if not data.strip():
            raise _no_json("it is empty") from None
        why = str(error)
        if data.startswith(BOM_UTF8):
            why = "it begins with a byte-order mark; send UTF-8 without one"
        elif error.msg == "Extra data":
            why += ": behind a value there is another one, which in a bulk has a line of its own"
        raise _no_json(why) from None
    except ValueError:
        text = "an integer has thousands of digits, which is more than can be read: make it a text"
        raise Refused("invalid", text) from None


def dumps(value: object) -> bytes:
    """A value as JSON, in UTF-8, on one line."""
    return _encoder.encode(value).encode()


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _no_json(f"the name {twice[:64]!r} is there twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise _no_json(f"{text} is no number of JSON")


def _no_json(why: str) -> Refused:
    return Refused("invalid", f"this is no JSON: {why}")


_decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number)
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
