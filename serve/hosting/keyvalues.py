"""The key-value view as a process hosts it: what it can be asked.

{"what": "value", "key": key, "at"?: T} -> {"at", "time", "value"}, or refused as absent
{"what": "items", "prefix": text, "limit": n, "behind"?: key, "at"?: T}
    -> {"at", "items": [{"key", "time", "value"}, ...], "more": whether there are further ones}

An answer with items has a bounded number of bytes, but for one item, which may be larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driftline.engine.errors import PayloadError, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.wire.codec import pack
from driftline.serve.errors import NoLongerRetained, Refused
from driftline.serve.hosting.config import Place, ViewSpec
from driftline.serve.views.hosted import Answer, Question, Work
from driftline.serve.views.keyvalue import KeyValueView, Version
from driftline.serve.views.tokens import token_of

LIMIT = 1_000
"""Keys of one answer, at most."""

BYTES_MAX = 8 << 20
"""Bytes of the values of one answer, if it has several: others wait while it is made."""


def views_of(flow: Flow) -> tuple[ViewSpec, ...]:
    """A key-value view of each sink of a flow, with the sink's name."""
    return tuple(
        ViewSpec(sink.name, f"{__name__}:make", options={"sink": str(number)})
        for number, sink in enumerate(flow.sinks)
    )


def make(place: Place) -> HostedKeyValues:
    """The view of the sink with the number `sink` among the options."""
    return HostedKeyValues(int(place.options["sink"]))


class HostedKeyValues(KeyValueView):
    """The values of the outputs of a sink, for a process that hosts them."""

    damaged = ""

    def ask(self, question: Question) -> Answer:
        """Answer as the module's docstring says. Raises Refused."""
        at = question.get("at", self.time)
        try:
            match question:
                case {"what": "value", "key": key} if isinstance(at, int):
                    return {"at": at, **self._found(key, at)}
                case {"what": "items", "prefix": str(prefix), "limit": int(limit)} if isinstance(
                    at, int
                ):
                    behind = {"behind": question["behind"]} if "behind" in question else {}
                    found = self.items(prefix, at, **behind)
                    return {"at": at, **_page(found, max(0, min(limit, LIMIT)))}
        except NoLongerRetained as error:
            raise Refused("retained", str(error), {"oldest": error.oldest}) from None
        except Unavailable as error:
            raise Refused("unavailable", str(error)) from None
        except (PayloadError, TypeError):
            raise Refused("invalid", "a key is a text, a number, or a list of these") from None
        raise Refused("invalid", "the view has no answer to such a question")

    def _found(self, key: object, at: int) -> Mapping[str, object]:
        found = self.get(key, at)
        if found is None:
            raise Refused("absent", "there is no such key", {"at": token_of(at)})
        return {"time": found.time, "value": found.value}

    def settle(self) -> None:
        """Nothing is put off."""

    def freeze(self) -> None:
        pass

    def saved(self) -> None:
        pass

    def work(self) -> Work | None:
        return None

    def figures(self) -> Mapping[str, float]:
        return {"keys": len(self), "without_key": self.without_key}


def _page(items: Iterable[tuple[object, Version]], limit: int) -> Mapping[str, object]:
    """The first items, and whether there are more."""
    rows: list[Mapping[str, object]] = []
    size = 0
    for key, found in items:
        size += len(pack((key, found.value)))
        if len(rows) == limit or (rows and size > BYTES_MAX):
            return {"items": rows, "more": True}
        rows.append({"key": key, "time": found.time, "value": found.value})
    return {"items": rows, "more": False}
