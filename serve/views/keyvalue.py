"""The key-value view: the latest value of each key of a sink, with its history.

The outputs of the sink are pairs of key and value; in longer tuples, the value is the tuple of all
elements but the first. An output has no usable key if it is not such a tuple, if its key is not
valid (`engine.keygroups`), or if its key is longer than `KEY_MAX`. The view counts these outputs,
but does not store them.

    >>> view = KeyValueView(sink=0)
    >>> view.apply(3, [Item((1, 0), 0, ("a", 1)), Item((2, 0), 0, ("a", 2))])
    >>> view.get("a"), view.get("a", at=2), view.get("a", at=1)
    (KeyVersion(time=2, value=2), KeyVersion(time=1, value=1), None)

Questions, and their answers:

    {"what": "value", "key": key, "at"?: T} -> {"at", "time", "value"}, or the ApiError "absent"
    {"what": "items", "prefix": text, "limit": n, "start_after"?: key, "at"?: T}
        -> {"at", "items": [{"key", "time", "value"}, ...], "more": whether further items follow}

An answer with items has at most about `ANSWER_BYTES_MAX` bytes, unless its only item is larger.

The history of a key is an array of times and a list of values. `forget_before` drops history below
a T: answers as of that T and later stay exact; the view rejects reads as of an earlier T.

Cost: about a microsecond for an output; a look-up is a binary search in the history of the key.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from driftline.engine.errors import PayloadError, SnapshotDamaged, Unavailable
from driftline.engine.keygroups import exact_key, pack_key, plain_key
from driftline.engine.texts import format_time
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack, unpack
from driftline.serve.errors import ApiError, RetentionExceeded
from driftline.serve.views.hosted import Answer, BackgroundJob, PauseHook, Question, no_pause
from driftline.serve.views.tokens import token_of

_FORMAT = "key-value 3"

_ROWS = 500
"""Maximum number of rows in a part of a checkpoint, and of versions in a row.

A row is (key, label times, values); a key with more versions has several rows.
"""

KEY_MAX = 4096
"""Maximum size of a key: characters of a string, encoded bytes of any other key."""

_INSERT_RATIO = 100
"""If there are fewer new keys than sorted keys / `_INSERT_RATIO`, insert each; else sort all."""

_FROM_START = object()
"""The default of `start_after`: begin with the first key."""

ITEMS_MAX = 1_000
"""Largest number of keys in one answer."""

ANSWER_BYTES_MAX = 8 << 20
"""Largest size of an answer with several values; limited, since other questions wait for it."""


class KeyVersion(NamedTuple):
    """A value of a key."""

    time: int
    """The label time of the output that set the value."""
    value: object


class KeyValueView:
    """View of the outputs of one sink; a `HostedView`. `sink`: its number in the flow."""

    damage = ""

    def __init__(self, sink: int) -> None:
        self.time = 0
        """T: all outputs below it have been applied."""
        self.since = 0
        """The smallest T as of which the view answers."""
        self.without_key = 0
        """Number of outputs of the sink without a usable key."""
        self._sink = sink
        self._latest: dict[object, tuple[int, object]] = {}
        """Exact key -> (label time, value) of its latest version."""
        self._older: dict[object, _History] = {}
        """Exact key -> its versions before the latest; only keys with such versions."""
        self._superseded: deque[int] = deque()
        """For each older version, the label time of the version that replaced it; oldest first."""
        self._superseded_of: deque[_History] = deque()
        """For each time in `_superseded`, the history that contains the replaced version."""
        self._order: list[object] = []
        """Keys in the order of `_rank`, without those in `_new`."""
        self._new: list[object] = []
        """Keys not in `_order` yet."""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        """Apply the outputs in [self.time, time), in label order."""
        for item in items:
            if item.sink != self._sink:
                continue
            if (pair := _pair(item.value)) is None:
                self.without_key += 1
                continue
            key, value = pair
            label_time = item.label[0]
            history = self._set(key, label_time, value)
            if history is not None:
                self._superseded.append(label_time)
                self._superseded_of.append(history)
        self.time = time

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._latest)

    def get(self, key: object, at: int | None = None) -> KeyVersion | None:
        """Return the value of a key as of a T, by default the newest T; None if it had no value.

        5, 5.0 and True are three keys (see `engine.keygroups`).

        Raises RetentionExceeded for a T below `since`, Unavailable for a T that the view has not
        reached, PayloadError for a value that is not a key.
        """
        return self._get(exact_key(key), self._check_time(at))

    def items(
        self, prefix: str = "", at: int | None = None, start_after: object = _FROM_START
    ) -> Iterator[tuple[object, KeyVersion]]:
        """Yield the keys with a prefix (by default all keys) in order, with their values as of a T.

        `start_after`: yield only keys after this one, which need not exist. Numbers sort before
        strings, and strings before other keys. `apply` may be called during the iteration. Raises
        the errors of `get`; RetentionExceeded also if `forget_before` drops the T meanwhile.
        """
        return self._items(self._keys(prefix, start_after), self._check_time(at))

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Answer:
        """Answer a question (see the module's docstring). Raises ApiError."""
        at = question.get("at", self.time)
        try:
            match question:
                case {"what": "value", "key": key} if isinstance(at, int):
                    return {"at": at, **self._entry_at(key, at)}
                case {"what": "items", "prefix": str(prefix), "limit": int(limit)} if isinstance(
                    at, int
                ):
                    start_after = (
                        {"start_after": question["start_after"]}
                        if "start_after" in question
                        else {}
                    )
                    items = self.items(prefix, at, **start_after)
                    return {"at": at, **_page(items, max(0, min(limit, ITEMS_MAX)))}
        except RetentionExceeded as error:
            raise ApiError("retained", str(error), {"oldest": error.oldest}) from None
        except Unavailable as error:
            raise ApiError("unavailable", str(error)) from None
        except (PayloadError, TypeError):
            raise ApiError(
                "invalid", "a key is a text, a number, true, false, null, or a list of these"
            ) from None
        raise ApiError("invalid", "the view does not support this kind of question")

    def _entry_at(self, key: object, at: int) -> Mapping[str, object]:
        version = self.get(key, at)
        if version is None:
            raise ApiError("absent", "there is no such key", {"at": token_of(at)})
        return {"time": version.time, "value": version.value}

    def do_deferred_work(self) -> None:
        """Do nothing, since `apply` defers nothing."""

    def freeze(self) -> None:
        pass

    def mark_saved(self) -> None:
        pass

    def next_job(self) -> BackgroundJob | None:
        return None

    def figures(self) -> Mapping[str, float]:
        return {"keys": len(self), "without_key": self.without_key}

    def forget_before(self, since: int) -> None:
        """Drop the history below `since`, but at most the history below `self.time`."""
        self.since = max(self.since, min(since, self.time))
        dropped: Counter[_History] = Counter()
        while self._superseded and self._superseded[0] < self.since:
            self._superseded.popleft()
            dropped[self._superseded_of.popleft()] += 1
        for history, count in dropped.items():
            history.drop(count)
            if not history.times:
                del self._older[history.key]

    def save(self) -> Iterator[bytes]:
        yield pack((_FORMAT, self._sink, self.time, self.since, self.without_key))
        rows: list[tuple[object, Sequence[int], Sequence[object]]] = []
        for key in self._latest:
            for times, values in self._versions(key):
                rows.append((plain_key(key), times, values))
                if len(rows) >= _ROWS or len(times) >= _ROWS:
                    yield pack(rows)
                    rows = []
        yield pack(rows)

    def load(self, parts: Iterable[bytes]) -> None:
        """Restore a saved view. Raises SnapshotDamaged for another sink or format version."""
        rest = iter(parts)
        match unpack(next(rest)):
            case (str(form), sink, int(time), int(since), int(without_key)) if (
                form == _FORMAT and sink == self._sink
            ):
                self.time, self.since, self.without_key = time, since, without_key
            case _:
                raise SnapshotDamaged(
                    "the checkpoint is of another sink, or of another version of Driftline"
                )
        superseded: list[tuple[int, _History]] = []
        for part in rest:
            for key, times, values in unpack(part):  # type: ignore[attr-defined]
                exact = exact_key(key)
                for label_time, value in zip(times, values, strict=True):
                    history = self._set(exact, label_time, value)
                    if history is not None:
                        superseded.append((label_time, history))
        superseded.sort(key=itemgetter(0))
        self._superseded.extend(label_time for label_time, _ in superseded)
        self._superseded_of.extend(history for _, history in superseded)

    def _set(self, key: object, label_time: int, value: object) -> _History | None:
        """Set a value. Return the history to which the previous value was added, or None."""
        previous = self._latest.get(key)
        self._latest[key] = label_time, value
        if previous is None:
            self._new.append(key)
            return None
        if previous[0] == label_time:  # no T can show the previous value
            return None
        history = self._older.get(key)
        if history is None:
            history = self._older[key] = _History(key)
        history.add(*previous)
        return history

    def _check_time(self, at: int | None) -> int:
        """Return `at`, or the newest T for None. Raises RetentionExceeded, Unavailable."""
        if at is None:
            at = self.time
        if at < self.since:
            raise RetentionExceeded.of("the view", self.since)
        if at > self.time:
            raise Unavailable(
                f"the view is at {format_time(self.time)}, before the requested label: retry later"
            )
        return at

    def _get(self, key: object, at: int) -> KeyVersion | None:
        latest = self._latest.get(key)
        if latest is None:
            return None
        if latest[0] < at:
            return KeyVersion(*latest)
        history = self._older.get(key)
        return None if history is None else history.before(at)

    def _items(self, keys: list[object], at: int) -> Iterator[tuple[object, KeyVersion]]:
        for key in keys:
            version = self._get(key, self._check_time(at))
            if version is not None:
                yield plain_key(key), version

    def _keys(self, prefix: str, start_after: object) -> list[object]:
        """Return the keys with a prefix that come after `start_after`, in order."""
        order, new = self._order, self._new
        if len(new) * _INSERT_RATIO < len(order):
            for key in new:
                insort(order, key, key=_rank)
        elif new:
            order += new
            order.sort(key=_rank)
        new.clear()
        begin, end = 0, len(order)
        if prefix:
            begin = bisect_left(order, _rank(prefix), key=_rank)
            end = bisect_left(order, True, begin, key=lambda key: not _starts_with(key, prefix))
        if start_after is not _FROM_START:
            begin = bisect_right(order, _rank(exact_key(start_after)), begin, end, key=_rank)
        return order[begin:end]

    def _versions(self, key: object) -> Iterator[tuple[Sequence[int], Sequence[object]]]:
        """Yield the versions of a key as (times, values), in batches of `_ROWS`."""
        history = self._older.get(key)
        latest_time, latest_value = self._latest[key]
        times = [*(history.times if history else ()), latest_time]
        values = [*(history.values if history else ()), latest_value]
        for begin in range(0, len(times), _ROWS):
            yield times[begin : begin + _ROWS], values[begin : begin + _ROWS]


class _History:
    """The versions of a key before its latest, oldest first."""

    __slots__ = ("key", "times", "values")

    def __init__(self, key: object) -> None:
        self.key = key
        self.times = array("q")
        self.values: list[object] = []

    def add(self, time: int, value: object) -> None:
        self.times.append(time)
        self.values.append(value)

    def before(self, at: int) -> KeyVersion | None:
        """Return the last version with a label time below `at`, or None."""
        number = bisect_left(self.times, at) - 1
        return KeyVersion(self.times[number], self.values[number]) if number >= 0 else None

    def drop(self, count: int) -> None:
        """Remove the `count` oldest versions."""
        del self.times[:count]
        del self.values[:count]


def _pair(payload: object) -> tuple[object, object] | None:
    """Return key and value of an output; None if it has no usable key."""
    if not isinstance(payload, tuple) or len(payload) < 2:
        return None
    key = payload[0]
    if type(key) is not str:
        try:
            key = exact_key(key)
        except PayloadError:  # NaN, or a dict
            return None
    if len(key if isinstance(key, str) else pack_key(key)) > KEY_MAX:
        return None
    return key, payload[1] if len(payload) == 2 else payload[1:]


def _rank(key: object) -> tuple[int | float | str | bytes, ...]:
    """Return the sort key of an exact key; equal numbers are ordered by their wire form."""
    if isinstance(key, str):
        return 1, key
    plain = plain_key(key)
    if isinstance(plain, (int, float)):
        return 0, plain, pack_key(key)
    return 2, pack_key(key)


def _starts_with(key: object, prefix: str) -> bool:
    return isinstance(key, str) and key.startswith(prefix)


def _page(items: Iterable[tuple[object, KeyVersion]], limit: int) -> Mapping[str, object]:
    """Return the answer with the first items: at most `limit`, and about `ANSWER_BYTES_MAX`."""
    rows: list[Mapping[str, object]] = []
    size = 0
    for key, version in items:
        size += len(pack((key, version.value)))
        if len(rows) == limit or (rows and size > ANSWER_BYTES_MAX):
            return {"items": rows, "more": True}
        rows.append({"key": key, "time": version.time, "value": version.value})
    return {"items": rows, "more": False}
