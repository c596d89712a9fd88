"""Peers do what Driftline does: what they were given is found, in every form of query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import sleep

import pytest

from driftline.bench.measuring.load import DocumentArrival, DrawnQuery, Load, QueryArrival
from driftline.bench.systems.peers import PEERS, Peer, observe

DOCUMENTS = [("1", "Green tea and cake"), ("2", "tea of the green leaf"), ("3", "Cake, and more")]


@pytest.fixture(params=list(PEERS))
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    if request.param.startswith("tantivy"):
        pytest.importorskip("tantivy")
    made = PEERS[request.param](tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        ("term", ["tea"], {"1", "2"}),
        ("union2", ["leaf", "more"], {"2", "3"}),
        ("union5", ["leaf", "more", "no", "such", "word"], {"2", "3"}),
        ("intersection", ["cake", "green"], {"1"}),
        ("phrase", ["green", "tea"], {"1"}),
    ],
)
def test_peer_answers_every_kind_of_query(
    peer: Peer, kind: str, words: list[str], expected: set[str]
) -> None:
    peer.write(DOCUMENTS)
    assert set(peer.open_searcher()(DrawnQuery(kind, words))) == expected


class Slow:
    """A peer whose every commit takes 30 ms, and which finds all but the document 7."""

    def __init__(self, every_s: float) -> None:
        self.commit_every_s = every_s
        self.sizes: list[int] = []
        self._words: dict[str, str] = {}

    def write(self, documents: Sequence[tuple[str, str]]) -> None:
        sleep(0.03)
        self.sizes.append(len(documents))
        self._words.update((text, id) for id, text in documents if id != "7")

    def open_searcher(self) -> Slow:
        return self

    def __call__(self, query: DrawnQuery) -> list[str]:
        found = self._words.get(query.words[0])
        return [] if found is None else [found]

    def close(self) -> None: ...


def load_of(count: int, every_s: float) -> Load:
    arriving = [DocumentArrival(n * every_s, str(n), f"word{n}", f"word{n}") for n in range(count)]
    return Load([], arriving, [QueryArrival(0.0, DrawnQuery("term", ["word0"]))], 0.0)


def test_freshness_includes_waiting_for_earlier_commits() -> None:
    """No coordinated omission: 20 documents in 0.1 s, of which each takes 30 ms."""
    peer = Slow(0.0)
    observed = observe(peer, load_of(20, 0.005))
    assert peer.sizes == [1] * 20
    assert observed.errors == {"not found": 1}
    assert len(observed.freshness_ms) == 19
    assert observed.freshness_ms[-1] > 20 * 30 - 100
    assert observed.figures["behind_s"] > 0.4
    assert 30 <= observed.figures["commit_p50_ms"] < 300


def test_periodic_commit_includes_all_pending_documents() -> None:
    peer = Slow(0.1)
    observed = observe(peer, load_of(20, 0.01))
    assert sum(peer.sizes) == 20
    assert len(peer.sizes) < 12
    assert len(observed.freshness_ms) == 19
