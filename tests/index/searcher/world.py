"""An index of one collection in some searchers, beside the sequential model that it is held to."""

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
from tests.index.search.model import Hit, Model, Write

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


def bound(query: str) -> Query:
    """What the collection understands."""
    return parse(query, COLLECTION)


def items_of(writes: list[Write]) -> list[Item]:
    """The outputs of the index's flow for these writes, and others that make no version."""
    items = []
    for time, version in versions(writes):
        payload = unpack(pack((VERSION, encode(_with_text(time, version)))))
        items.append(Item((time, 0), 0, payload))
        items.append(Item((time, 1), 0, ("changed", ("c", version.id, time))))
        items.append(Item((time, 2), -1, payload))
    return items


def _with_text(time: int, version: DocumentVersion) -> DocumentVersion:
    """What is stored tells documents and versions apart."""
    if version.deleted:
        return version
    return version._replace(stored=json.dumps({"id": version.id, "time": time}).encode())


class Replica:
    """The searcher of one shard, with the checkpoint on its disk."""

    def __init__(self, directory: Path, shard: int, shards: int) -> None:
        self._about = directory, shard, shards
        self.checkpoint: list[bytes] | None = None
        self.searcher = self._new()
        self._saving: list[bytes] | None = None
        self._work: BackgroundJob | None = None

    def _new(self) -> Searcher:
        directory, shard, shards = self._about
        return Searcher(SCHEMA, directory, shard, shards)

    def happen(self, what: str, items: list[Item]) -> None:
        """Something happens to the process that has the searcher; `items`: of the journal."""
        searcher = self.searcher
        match what:
            case "freeze":
                searcher.freeze()
                self._saving = list(searcher.save())
            case "save fails":
                searcher.freeze()
                next(searcher.save())  # perhaps with a file that nobody will need
                self._saving = None
            case "save":
                self.happen("freeze", items)
                self.happen("saved", items)
            case "saved" if self._saving is not None:
                self.checkpoint, self._saving = self._saving, None
                searcher.mark_saved()
            case "merge":
                self.happen("merge begins", items)
                self.happen("merge ends", items)
            case "merge begins" | "merge fails" if self._work is None:
                self._work = searcher.next_job()
                if self._work is not None:
                    self._work.do()
                if what == "merge fails":
                    self._work = None
            case "merge ends" if self._work is not None:
                self._work.on_success()
                self._work = None
            case "reopen":
                self.searcher, self._saving, self._work = self._new(), None, None
                if self.checkpoint is not None:
                    self.searcher.load(self.checkpoint)
                self.follow(items, searcher.time)
                self.searcher.forget_before(searcher.since)

    def follow(self, items: list[Item], time: int) -> None:
        """Apply what is new of all items."""
        new = [item for item in items if self.searcher.time <= item.label[0] < time]
        self.searcher.apply(time, new)


def hits_of(answer: Answer) -> list[Hit]:
    """The hits of an answer."""
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
    """The hits of all shards together, page by page."""
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
    """As of a T the answers of all shards together are those of the model, to the last bit."""
    for query in queries:
        expected = model.search(bound(query), at)
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
