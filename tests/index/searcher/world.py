"""Searchers of an index with one collection, and checks against the sequential model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import strategies as st

from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack, unpack
from driftline.index.documents.analysis import analyser
from driftline.index.documents.schema import Collection, Schema, TextField, ValueField
from driftline.index.documents.values import Kind
from driftline.index.documents.versions import DocumentVersion, encode
from driftline.index.documents.writes import VERSION
from driftline.index.query.parsing import parse
from driftline.index.query.tree import Query
from driftline.index.searcher.searcher import Searcher, shard_of
from driftline.serve.errors import ApiError
from driftline.serve.views.hosted import Answer, BackgroundJob, HostedView
from tests.index.search.indexes import WEIGHTS, versions
from tests.index.search.model import Hit, Model, ModelWrite

IDS = "pqrstuvw"

PLAIN = analyser("plain")
COLLECTION = Collection(
    "c",
    (
        TextField("title", 0, PLAIN, WEIGHTS[0]),
        TextField("text", 1, PLAIN, WEIGHTS[1]),
        ValueField("tags", 0, Kind.KEYWORD),
        ValueField("number", 1, Kind.NUMBER),
        ValueField("day", 2, Kind.DATE),
    ),
    "stored",
)
SCHEMA = Schema({"c": COLLECTION})

LEAVES = st.sampled_from(
    (
        "title:a",
        "text:ab",
        "text:abc",
        "text:caa",
        "title:(b OR c)",
        'text:"a b"',
        'text:"a b ab"',
        "title:ab*",
        "text:c*",
        "title:ab~",
        "tags:x",
        "tags:x*",
        "number:[-1.5 TO 0]",
        "*",
    )
)
QUERIES = st.recursive(
    LEAVES,
    lambda some: st.one_of(
        st.builds("({} OR {})".format, some, some),
        st.builds("({} {})".format, some, some),
        st.builds("({} -{})".format, some, some),
    ),
    max_leaves=3,
)


def parse_query(query: str) -> Query:
    """Parse a query for the collection."""
    return parse(query, COLLECTION)


def items_of(writes: list[ModelWrite]) -> list[Item]:
    """Return the outputs of the flow of the index for these writes, also outputs of other sinks."""
    items = []
    for time, version in versions(writes):
        payload = unpack(pack((VERSION, encode(_with_stored_identity(time, version)))))
        items.append(Item((time, 0), 0, payload))
        items.append(Item((time, 1), 0, ("changed", ("c", version.id, time))))
        items.append(Item((time, 2), -1, payload))
    return items


def _with_stored_identity(time: int, version: DocumentVersion) -> DocumentVersion:
    """Store the id and the time, which identify document and version."""
    if version.deleted:
        return version
    return version._replace(stored=json.dumps({"id": version.id, "time": time}).encode())


class SearcherReplica:
    """Searcher of one shard, with its last checkpoint."""

    def __init__(self, directory: Path, shard: int, shards: int) -> None:
        self._location = directory, shard, shards
        self.checkpoint: list[bytes] | None = None
        self.searcher = self._new()
        self._saving: list[bytes] | None = None
        self._job: BackgroundJob | None = None

    def _new(self) -> Searcher:
        directory, shard, shards = self._location
        return Searcher(SCHEMA, directory, shard, shards)

    def apply_event(self, what: str, items: list[Item]) -> None:
        """Apply an event to the process of the searcher; `items`: all items of the journal."""
        searcher = self.searcher
        match what:
            case "freeze":
                searcher.freeze()
                self._saving = list(searcher.save())
            case "save fails":
                searcher.freeze()
                next(searcher.save())  # may leave an unused file
                self._saving = None
            case "save":
                self.apply_event("freeze", items)
                self.apply_event("saved", items)
            case "saved" if self._saving is not None:
                self.checkpoint, self._saving = self._saving, None
                searcher.mark_saved()
            case "merge":
                self.apply_event("merge begins", items)
                self.apply_event("merge ends", items)
            case "merge begins" | "merge fails" if self._job is None:
                self._job = searcher.next_job()
                if self._job is not None:
                    self._job.do()
                if what == "merge fails":
                    self._job = None
            case "merge ends" if self._job is not None:
                self._job.on_success()
                self._job = None
            case "reopen":
                self.searcher, self._saving, self._job = self._new(), None, None
                if self.checkpoint is not None:
                    self.searcher.load(self.checkpoint)
                self.follow(items, searcher.time)
                self.searcher.forget_before(searcher.since)

    def follow(self, items: list[Item], time: int) -> None:
        """Apply the items that are new to the searcher, up to a time."""
        new = [item for item in items if self.searcher.time <= item.label[0] < time]
        self.searcher.apply(time, new)


def hits_of(answer: Answer) -> list[Hit]:
    """Return the hits of an answer."""
    hits = answer["hits"]
    assert isinstance(hits, list)
    found = []
    for hit in hits:
        match hit:
            case {"id": str(id), "score": float(score), "time": int(time), "value": None}:
                assert json.loads(hit["stored"]) == {"id": id, "time": time}
                found.append((id, score, time))
            case _:
                raise AssertionError(hit)
    return found


def pages(searchers: Sequence[HostedView], query: str, at: int, limit: int) -> Iterator[list[Hit]]:
    """Yield the pages of hits of all shards together."""
    question = {"what": "search", "collection": "c", "q": query, "limit": limit, "at": at}
    start_after: tuple[float, int, None] | None = None
    while True:
        answers = [searcher.ask({**question, "start_after": start_after}) for searcher in searchers]
        hits = [hit for answer in answers for hit in hits_of(answer)]
        page = sorted(hits, key=lambda hit: (-hit[1], hit[2]))[:limit]
        yield page
        if len(page) < limit:
            return
        start_after = *page[-1][1:], None


def check(searchers: Sequence[HostedView], model: Model, queries: list[str], at: int) -> None:
    """Check that as of a T the answers of all shards equal those of the model to the last bit."""
    for query in queries:
        expected = model.search(parse_query(query), at)
        question = {"what": "count", "collection": "c", "q": query, "at": at}
        totals = [searcher.ask(question)["total"] for searcher in searchers]
        assert sum(each for each in totals if isinstance(each, int)) == len(expected), query
        found = [hit for page in pages(searchers, query, at, 3) for hit in page]
        assert found == expected, query
    documents = model.documents(at)
    if at == searchers[0].time:
        assert sum(searcher.figures()["documents"] for searcher in searchers) == len(documents)
    for id in IDS:
        owner = searchers[shard_of(id, len(searchers))]
        for searcher in searchers:
            question = {"what": "get", "collection": "c", "id": id, "at": at}
            if id in documents and searcher is owner:
                time = documents[id][0]
                stored = json.dumps({"id": id, "time": time}).encode()
                assert searcher.ask(question) == {"time": time, "stored": stored}
            else:
                with pytest.raises(ApiError, match="has no document") as refused:
                    searcher.ask(question)
                assert refused.value.code == "absent"
