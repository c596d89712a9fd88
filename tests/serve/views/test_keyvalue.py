"""Key-value view: as of every T it equals a plain dict, in every replica."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline import Flow
from driftline.engine.errors import FlowError, SnapshotDamaged, Unavailable
from driftline.engine.wire.bundles import Item
from driftline.serve.errors import RetentionExceeded
from driftline.serve.hosting.config import key_value_views
from driftline.serve.views import keyvalue
from driftline.serve.views.keyvalue import KeyValueView, KeyVersion
from tests.serve.journal.runs import rngs

KEYS: list[object] = ["", "a", "ab", "b", "b\U0010ffff", "ж", 1, 2.5, -3, (1, "a"), None, b"a"]
IN_ORDER: list[object] = [-3, 1, 2.5, "", "a", "ab", "b", "b\U0010ffff", "ж", (1, "a"), None, b"a"]


def model(items: list[Item], at: int) -> dict[object, KeyVersion]:
    """Return the contents as of a T, computed in the simplest way."""
    values: dict[object, KeyVersion] = {}
    for item in items:
        if item.sink == 0 and item.label[0] < at:
            assert isinstance(item.value, tuple)
            values[item.value[0]] = KeyVersion(item.label[0], item.value[1])
    return values


def check(view: KeyValueView, items: list[Item], keys: list[object]) -> None:
    """Check the answers for all keys as of each retained T, and errors for other T."""
    for at in range(view.time + 1):
        if at < view.since:
            with pytest.raises(RetentionExceeded) as refused:
                view.get("a", at)
            assert refused.value.oldest == view.since
            with pytest.raises(RetentionExceeded):
                next(view.items(at=at))
            continue
        expected = model(items, at)
        assert {key: view.get(key, at) for key in keys} == {key: expected.get(key) for key in keys}
        found = list(view.items(at=at))
        assert dict(found) == expected
        assert [key for key, _ in found] == sorted(expected, key=IN_ORDER.index)
        for prefix in ("a", "b", "b\U0010ffff", "x"):
            texts = [key for key in expected if isinstance(key, str) and key.startswith(prefix)]
            with_prefix = {key: expected[key] for key in texts}
            assert dict(view.items(prefix, at)) == with_prefix
    with pytest.raises(Unavailable, match="retry later"):
        view.get("a", view.time + 1)


def outputs(rng: Random, times: int, keys: list[object]) -> list[Item]:
    return [
        Item((time, 0, child), 0, (rng.choice(keys), rng.choice((None, 1, "x", (1, 2)))))
        for time in range(times)
        for child in range(rng.choice((0, 1, 1, 4)))
    ]


def spans(view: KeyValueView, items: list[Item], until: int, rng: Random) -> Iterator[None]:
    """Apply all outputs in random steps."""
    while view.time < until:
        time = rng.randint(view.time + 1, min(until, view.time + 6))
        view.apply(time, [item for item in items if view.time <= item.label[0] < time])
        yield


@given(rngs, st.sampled_from([1, 100]))
def test_view_is_exact_at_every_retained_time(rng: Random, few: int) -> None:
    items = outputs(rng, 20, KEYS)
    view = KeyValueView(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyvalue, "_INSERT_RATIO", few)
        for _ in spans(view, items, 22, rng):
            if rng.random() < 0.3:
                check(view, items, KEYS)
            if rng.random() < 0.4:
                view.forget_before(rng.randint(0, 25))
                check(view, items, KEYS)
        check(view, items, KEYS)
    view.forget_before(view.time)
    assert not view._older
    assert not view._superseded


@given(rngs, st.sampled_from([1, 2, 500]))
def test_loaded_checkpoint_equals_the_saved_view(rng: Random, rows: int) -> None:
    items = outputs(rng, 20, KEYS)
    view, other = KeyValueView(0), KeyValueView(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyvalue, "_ROWS", rows)
        progress = spans(view, items, 22, rng)
        for _ in range(rng.randint(0, 5)):
            next(progress, None)
            view.forget_before(rng.randint(0, 30) - 10)
        other.load(view.save())
    assert (other.time, other.since) == (view.time, view.since)
    for each in (view, other):
        for _ in spans(each, items, 22, rng):
            pass
        check(each, items, KEYS)
    other.forget_before(15)
    check(other, items, KEYS)
    assert all(time >= other.since for time in other._superseded)
    other.forget_before(other.time)
    assert not other._older
    assert not other._superseded_of


def test_keys_differ_by_type_and_outputs_without_key_are_counted() -> None:
    view = KeyValueView(1)
    values = [(1, "a"), (1.0, "b"), (True, "c"), ((1.0, 2), "d"), ((1, 2), "e")]
    odd = ["ab", ("a",), ({"a": 1}, 2), (float("nan"), 1), (("a", {}), 1), 7, None]
    items = [Item((time, 0), 1, value) for time, value in enumerate([*values, *odd])]
    view.apply(50, [*items, Item((49, 0), 0, ("other", 1)), Item((49, 1), -1, ("failure", 1))])
    assert repr([(key, found.value) for key, found in view.items()]) == (
        "[(1, 'a'), (True, 'c'), (1.0, 'b'), ((1, 2), 'e'), ((1.0, 2), 'd')]"
    )
    assert view.get(True) == KeyVersion(2, "c")
    assert [key for key, _ in view.items(start_after=True)] == [1.0, (1, 2), (1.0, 2)]
    assert view.without_key == len(odd)
    other = KeyValueView(1)
    other.load(view.save())
    assert other.without_key == len(odd)
    assert other.get(1.0) == KeyVersion(1, "b")
    view.apply(51, [Item((50, 0), 1, ("wide", 1, 2, 3))])
    assert view.get("wide") == KeyVersion(50, (1, 2, 3))


def test_iteration_is_as_of_one_time_while_the_view_advances() -> None:
    view = KeyValueView(0)
    view.apply(10, [Item((n, 0), 0, (key, n)) for n, key in enumerate("bdfa")])
    items = view.items()
    assert next(items) == ("a", KeyVersion(3, 3))
    view.apply(20, [Item((10 + n, 0), 0, (key, -n)) for n, key in enumerate("bcdea")])
    assert next(items) == ("b", KeyVersion(0, 0))
    assert list(items) == [("d", KeyVersion(1, 1)), ("f", KeyVersion(2, 2))]
    items = view.items()
    next(items)
    view.apply(30, [])
    view.forget_before(25)
    with pytest.raises(RetentionExceeded):
        next(items)


def test_checkpoint_of_another_sink_is_rejected() -> None:
    with pytest.raises(SnapshotDamaged):
        KeyValueView(0).load(KeyValueView(1).save())


def test_sink_with_the_name_of_another_directory_of_the_service_is_rejected() -> None:
    flow = Flow("served")
    flow.source("in").sink("input")
    with pytest.raises(FlowError, match="a sink named 'input': rename the sink"):
        key_value_views(flow)
