"""Watch events of searchers that save, merge and restart at any moment, against a brute-force
matcher."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline import run_reference
from driftline.engine.errors import SnapshotDamaged
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack, unpack
from driftline.index.documents.writes import WatchWrite, Write, document_flow
from driftline.index.search import watches
from driftline.index.search.watches import Event
from driftline.index.searcher.searcher import Searcher
from driftline.serve.errors import ApiError
from driftline.serve.views.tokens import time_of, token_of
from tests.index.search.model import ModelDocument
from tests.index.search.test_watches import BruteForceWatches
from tests.index.searcher.test_damage import flip_bit, load_searcher
from tests.index.searcher.test_searcher import EVENTS
from tests.index.searcher.world import COLLECTION, QUERIES, SCHEMA, SearcherReplica

WORDS = st.lists(st.sampled_from(("a", "b", "ab", "abc", "c", "caa")), max_size=6).map(" ".join)
DOCUMENTS = st.fixed_dictionaries(
    {"title": WORDS, "text": WORDS},
    optional={
        "tags": st.lists(st.sampled_from(("x", "xy", "z")), max_size=2),
        "number": st.sampled_from((-1.5, 2.0)),
    },
)
WRONG = st.sampled_from(("", "((", "none:a", "-a"))
"""Invalid queries, and one without positive words."""

WRITES = st.lists(
    st.builds(Write, st.just("c"), st.sampled_from("pqr"), st.none() | DOCUMENTS)
    | st.builds(WatchWrite, st.just("c"), st.sampled_from("vw"), st.none() | QUERIES | WRONG),
    max_size=25,
)


def items_of(writes: list[Write | WatchWrite]) -> list[Item]:
    return list(run_reference(document_flow(SCHEMA), [[write.record() for write in writes]]))


def brute_force(writes: list[Write | WatchWrite]) -> BruteForceWatches:
    model = BruteForceWatches(COLLECTION)
    for time, write in enumerate(writes, 1):
        if isinstance(write, Write):
            model.write(time, write.id, None if write.document is None else _model(write.document))
        elif write.query is None:
            model.queries.pop(write.id, None)
        else:
            model.queries[write.id] = write.query
    return model


def _model(document: object) -> ModelDocument:
    match document:
        case {"title": str(title), "text": str(text), **others}:
            tags, number = others.get("tags", ()), others.get("number")
            assert isinstance(tags, list | tuple)
            assert number is None or isinstance(number, float)
            texts = tuple(title.split()), tuple(text.split())
            return ModelDocument(texts, tuple(tags), number)
    raise AssertionError(document)


def ask(searcher: Searcher, what: str, **others: object) -> dict[str, object]:
    """Return the answer as another process receives it."""
    answer = unpack(pack(searcher.ask({"what": what, "collection": "c", **others})))
    assert isinstance(answer, dict)
    return answer


def all_events(searchers: list[Searcher], watch: str, since: int, limit: int) -> list[Event]:
    """Return the events of all shards; each request continues at `upto` of the previous one."""
    found: list[Event] = []
    while since < searchers[0].time:
        question = {"watch": watch, "since": since, "limit": limit}
        answers = [ask(searcher, "events", **question) for searcher in searchers]
        upto = min(time for answer in answers if isinstance(time := answer["upto"], int))
        assert upto > since
        some = []
        for answer in answers:
            events = answer["events"]
            assert isinstance(events, list | tuple)
            assert {each["watch"] for each in events} <= {watch}
            some += [
                Event(time_of(each["label"]) - 1, each["id"], each["event"]) for each in events
            ]
        found += sorted(event for event in some if event.time < upto)
        since = upto
    return found


@given(
    writes=WRITES,
    shards=st.integers(1, 2),
    event_schedule=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1), EVENTS), max_size=20),
    retained=st.integers(1, 12),
    limit=st.integers(1, 3),
    swept_from=st.integers(0, 3),
)
def test_watch_events_equal_brute_force_matching(
    writes: list[Write | WatchWrite],
    shards: int,
    event_schedule: list[tuple[int, int, str]],
    retained: int,
    limit: int,
    swept_from: int,
) -> None:
    items = items_of(writes)
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(watches, "SWEEP_MIN", swept_from)
        replicas = [SearcherReplica(Path(directory, str(i)), i, shards) for i in range(shards)]
        time = 0
        for step, number, what in [*event_schedule, (len(writes) + 1, 0, "reopen")]:
            time = min(time + step, len(writes) + 1)
            for replica in replicas:
                replica.follow(items, time)
            replicas[number % shards].apply_event(what, items)
            for replica in replicas:
                replica.searcher.forget_before(time - retained)
            since = max(0, time - retained)
            expected = brute_force(writes[: max(0, time - 1)])
            searchers = [replica.searcher for replica in replicas]
            for watch in "vw":
                later = [e for e in expected.events.get(watch, []) if e.time >= since]
                assert all_events(searchers, watch, since, limit) == later
            for searcher in searchers:
                listed = ask(searcher, "watches")
                assert listed["total"] == len(expected.queries)
                rows = listed["watches"]
                assert isinstance(rows, list | tuple)
                assert {row["id"]: row["q"] for row in rows} == expected.queries


@pytest.fixture
def watch_searcher(tmp_path: Path) -> Searcher:
    searcher = Searcher(SCHEMA, tmp_path)
    searcher.apply(
        7,
        items_of(
            [
                WatchWrite("c", "w", "title:a"),
                Write("c", "p", {"title": "a"}),
                WatchWrite("c", "v", "a ("),
                Write("c", "p", {"title": "b"}),
                WatchWrite("c", "never", None),
                Write("c", "q", {"title": "a"}),
            ]
        ),
    )
    return searcher


def test_watch_requests_are_answered(watch_searcher: Searcher) -> None:
    watch = {"id": "w", "q": "title:a", "label": token_of(2)}
    other = {"id": "v", "q": "a (", "label": token_of(4)}
    assert ask(watch_searcher, "watch", watch="w") == watch
    assert ask(watch_searcher, "watches") == {"total": 2, "watches": (other, watch)}
    last = ask(watch_searcher, "watches", start_after="v", limit=1)
    assert last == {"total": 2, "watches": (watch,)}
    entered = {"label": token_of(3), "id": "p", "event": "entered", "watch": "w"}
    left = {"label": token_of(5), "id": "p", "event": "left", "watch": "w"}
    entered_q = {"label": token_of(7), "id": "q", "event": "entered", "watch": "w"}
    found = ask(watch_searcher, "events", watch="w", since=0)
    assert found == {"events": (entered, left, entered_q), "upto": 7}
    some = ask(watch_searcher, "events", watch="w", since=0, limit=2)
    assert some == {"events": (entered, left), "upto": 5}
    before = ask(watch_searcher, "events", watch="w", since=3, at=6)
    assert before == {"events": (left,), "upto": 6}
    figures = watch_searcher.figures()
    assert (figures["watches"], figures["watch_events"]) == (2, 3)
    watch_searcher.forget_before(3)
    assert watch_searcher.figures()["watch_events"] == 2


def test_invalid_watch_requests_are_rejected(watch_searcher: Searcher) -> None:
    watch_searcher.forget_before(3)
    for code, text, question in (
        ("absent", "no watch 'x'", {"what": "watch", "watch": "x"}),
        ("invalid", "Expected `int` <= 1000", {"what": "watches", "limit": 1_001}),
        ("retained", "the index", {"what": "events", "watch": "w", "since": 2}),
    ):
        with pytest.raises(ApiError, match=text) as refused:
            watch_searcher.ask({"collection": "c", **question})
        assert refused.value.code == code


def test_damage_never_causes_wrong_watch_events(tmp_path: Path) -> None:
    items = items_of(
        [
            WatchWrite("c", "w", '"a b"'),
            Write("c", "p", {"title": "a b"}),
            Write("c", "p", {"title": "b a"}),
        ]
    )
    replica = SearcherReplica(tmp_path, 0, 1)
    replica.follow(items, 3)
    replica.apply_event("save", items)
    [path] = tmp_path.glob("*.segment")
    good, refused = path.read_bytes(), list[str]()
    for at in range(0, len(good), 17):
        path.write_bytes(flip_bit(good, at))
        try:
            searcher = load_searcher(tmp_path, replica.checkpoint or [])
            searcher.apply(4, items[-1:])
            assert len(all_events([searcher], "w", 0, 9)) == 2
        except SnapshotDamaged:
            pass
        except ApiError as error:
            refused.append(f"{error.code}: {error}, {path.exists()}")
        path.write_bytes(good)
    assert len(refused) > 2
    assert all(re.fullmatch("unavailable: .*is damaged.*, False", each) for each in refused)
