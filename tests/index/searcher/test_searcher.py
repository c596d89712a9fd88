"""Answers of searchers that save, merge and restart at any moment, against the model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.index.searcher import collection as holding
from driftline.index.searcher.searcher import Searcher
from driftline.serve.views.checkpoint import restore_view, write_checkpoint
from driftline.serve.views.hosted import HostedView
from tests.index.search.indexes import WEIGHTS, histories
from tests.index.search.model import Model, ModelDocument, ModelWrite
from tests.index.searcher.world import IDS, QUERIES, SCHEMA, SearcherReplica, check, items_of

EVENTS = st.sampled_from(
    (
        *("save", "save", "save", "save", "freeze", "save fails", "saved"),
        *("merge", "merge", "merge begins", "merge ends", "merge fails", "reopen"),
    )
)


@pytest.fixture
def _merge_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    def merged_from(sizes: Sequence[int]) -> int:
        return len(sizes) // 3 if len(sizes) > 1 else len(sizes)

    monkeypatch.setattr(holding, "first_to_merge", merged_from)


@pytest.mark.slow
@pytest.mark.usefixtures("_merge_eagerly")
@settings(max_examples=30)
@given(
    history=histories(),
    shards=st.integers(1, 2),
    event_schedule=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1), EVENTS), min_size=9),
    retained=st.integers(1, 60),
    queries=st.lists(QUERIES, min_size=1, max_size=3),
)
def test_answers_equal_the_model_after_saves_merges_and_restarts(
    history: tuple[Model, int],
    shards: int,
    event_schedule: list[tuple[int, int, str]],
    retained: int,
    queries: list[str],
) -> None:
    model, end = history
    items = items_of(model.writes)
    with TemporaryDirectory() as directory:
        replicas = [SearcherReplica(Path(directory, str(i)), i, shards) for i in range(shards)]
        time = 0
        for step, number, what in event_schedule:
            time = min(time + step, end + 1)
            for replica in replicas:
                replica.follow(items, time)
            replicas[number % shards].apply_event(what, items)
            for replica in replicas:
                replica.searcher.forget_before(time - retained)
            searchers = [replica.searcher for replica in replicas]
            for at in {time, max(0, time - retained // (1 + number))}:
                check(searchers, model, queries, at)


@pytest.mark.slow
def test_forked_process_saves_while_the_searcher_continues(tmp_path: Path) -> None:
    """Versions, queries and a merge happen during and between the checkpoints."""
    model, checkpoint = Model(WEIGHTS), tmp_path / "checkpoint"
    random = Random(3)
    searcher: HostedView = Searcher(SCHEMA, tmp_path / "segments")
    queries = ["title:a -text:b", 'text:"a b" OR title:ab~', "tags:x*"]
    for round_ in range(6):
        write_some(model, random, 40)
        follow(searcher, model)
        searcher.freeze()
        pid = run_forked(lambda: write(checkpoint, searcher))
        frozen_at = searcher.time
        write_some(model, random, 10)
        follow(searcher, model)
        check([searcher], model, queries, searcher.time)
        assert exited_normally(pid)
        if round_ != 4:  # the searcher never learns of this checkpoint
            searcher.mark_saved()
        check([searcher], model, queries, searcher.time)
        other = shutil.copytree(tmp_path / "segments", tmp_path / f"segments {round_}")
        restored = restore_view(checkpoint, "me", partial(Searcher, SCHEMA, other))
        assert restored.time == frozen_at
        for at in range(0, restored.time, 37):
            check([restored], model, queries, at)
        if work := searcher.next_job():
            assert exited_normally(run_forked(work.do))
            work.on_success()
            check([searcher], model, queries, searcher.time - 20)
    assert searcher.figures()["segments"] <= 3
    assert len(list((tmp_path / "segments").iterdir())) <= 8


@pytest.mark.slow
def test_index_size_is_bounded_when_documents_are_replaced(tmp_path: Path) -> None:
    """Expired versions and deleted documents are dropped; retained versions remain readable, also
    after a restart from the last checkpoint."""
    model, random = Model(WEIGHTS), Random(5)
    replica = SearcherReplica(tmp_path, 0, 1)
    queries = ["text:a -title:b", "tags:x*", "*"]
    sizes = []
    for round_ in range(18):
        write_some(model, random, 40)
        items = items_of(model.writes)
        replica.follow(items, len(model.writes) + 1)
        replica.searcher.forget_before(replica.searcher.time - 60)
        for what in ("save", "merge", "merge", "save", *["reopen"] * (round_ % 7 == 0)):
            replica.apply_event(what, items)
        time = replica.searcher.time
        for at in (time, max(time - 60, 0)):
            check([replica.searcher], model, queries, at)
        sizes.append((replica.searcher.figures()["versions"], directory_size_bytes(tmp_path)))
    most_versions, most_bytes = (max(each[:8]) for each in zip(*sizes, strict=True))
    assert most_versions < 60 + 40 * 5
    assert max(versions for versions, _ in sizes) <= most_versions * 1.5
    assert max(size for _, size in sizes) <= most_bytes * 1.5


def test_purged_document_is_not_confused_with_a_new_one(tmp_path: Path) -> None:
    model, replica = Model(WEIGHTS), SearcherReplica(tmp_path, 0, 1)
    one = ModelDocument((("a",), ("b",)), ())
    model.writes += [ModelWrite(time, "q", one) for time in range(1, 5)]
    model.writes += [ModelWrite(time, "p", one if time % 2 else None) for time in range(5, 9)]
    replica.follow(items_of(model.writes), 9)
    for what in ("save", "retain", "merge", "save", "reopen", "new ones"):
        match what:
            case "retain":
                replica.searcher.forget_before(9)
            case "new ones":
                model.writes += [
                    ModelWrite(9, "r", one),
                    ModelWrite(10, "q", None),
                    ModelWrite(11, "q", one),
                ]
            case _:
                replica.apply_event(what, items_of(model.writes))
        replica.follow(items_of(model.writes), len(model.writes) + 1)
        check([replica.searcher], model, ["*", "text:b"], replica.searcher.time)
        if what == "reopen":
            assert replica.searcher.figures()["versions"] == 1


def directory_size_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def write_some(model: Model, random: Random, number: int) -> None:
    for _ in range(number):
        time = len(model.writes) + 1
        texts = tuple(tuple(random.choices(("a", "b", "ab", "abc"), k=5)) for _ in range(2))
        document = ModelDocument(texts, ("x",)) if random.random() < 0.9 else None
        model.writes.append(ModelWrite(time, random.choice(IDS), document))


def follow(searcher: HostedView, model: Model) -> None:
    items = items_of(model.writes)
    new = [item for item in items if item.label[0] >= searcher.time]
    searcher.apply(len(model.writes) + 1, new)


def write(path: Path, searcher: HostedView) -> None:
    for _ in write_checkpoint(path, "me", searcher.save()):
        pass


def run_forked(do: Callable[[], None]) -> int:
    """Fork, run `do` in the child, and return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        do()
        os._exit(0)
    finally:
        os._exit(1)


def exited_normally(pid: int) -> bool:
    return os.waitpid(pid, 0)[1] == 0
