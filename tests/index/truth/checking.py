"""Checks everything that clients were told against one sequential run of all writes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from driftline.index.documents.schema import Collection
from tests.index.truth.model import SequentialIndex
from tests.index.truth.notes import Answered, Notes, Sent
from tests.index.truth.watching import Event, wrong_events

SHOWN = 10
"""Mistakes that are told of at most."""


def check(
    notes: Notes,
    events: Sequence[Event],
    collection: Collection,
    streams: Mapping[str, Sequence[Event]],
) -> None:
    """Everything is as it has to be.

    `events`: the change stream, from its beginning on; `streams`: the stream of each watch.
    """
    wrong = [
        *notes.wrong,
        *wrong_writes(notes, events),
        *wrong_answers(notes.answered, events, collection),
        *wrong_events(notes.watched, streams, events, collection),
    ]
    more = f"\n... and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    assert not wrong, "\n" + "\n".join(wrong[:SHOWN]) + more


def wrong_writes(notes: Notes, events: Sequence[Event]) -> Iterator[str]:
    """Every acknowledged write is in the stream once, at its label, and nothing that nobody sent.

    A write that was not acknowledged may be there once.
    """
    labels = [label for label, _ in events]
    if labels != sorted(set(labels)):
        yield "labels of the stream do not ascend"
    by_mark = {sent.mark: sent for sent in notes.sent}
    acknowledged = {sent.label: sent for sent in notes.sent if sent.label}
    unsure = Counter(sent.id for sent in notes.sent if sent.kind == "delete" and not sent.label)
    events_by_label = dict(events)
    seen: Counter[str] = Counter()
    there: dict[str, int] = {}
    for label in sorted({*labels, *acknowledged}):
        event, sent = events_by_label.get(label), acknowledged.get(label)
        if event is not None and sent is None:
            sent = _unacknowledged(event, by_mark, unsure)
        if sent is None:
            yield f"nobody sent what is in the stream at {label}: {event}"
            continue
        yield from _wrong_write(label, sent, event, there.get(sent.id, 0))
        seen[sent.mark] += 1
        if seen[sent.mark] > 1 or sent.label not in (0, label):
            yield f"{sent} is in the stream again at {label}: {event}"
        if event is not None:
            there[sent.id] = label if sent.kind == "put" else 0


def _unacknowledged(
    event: Mapping[str, object], by_mark: Mapping[str, Sent], unsure: Counter[str]
) -> Sent | None:
    """The write that nobody was told of, of which an event tells."""
    id = str(event["id"])
    document = event.get("document")
    if isinstance(document, dict):
        return by_mark.get(str(document["mark"]))
    unsure[id] -= 1
    return (
        Sent("delete", id, f"a deletion of {id}, {unsure[id]}", None) if unsure[id] >= 0 else None
    )


def _wrong_write(
    label: int, sent: Sent, event: Mapping[str, object] | None, there: int
) -> Iterator[str]:
    """What is wrong with a write; `there`: the label of the version of before."""
    if sent.expected is not None and sent.expected != there:
        yield f"at {label} there was {there}, and this was written: {sent}"
    if sent.kind == "put":
        wanted: object = {"id": sent.id, "document": sent.document}
    else:
        wanted = {"id": sent.id, "deleted": True} if there else None
        if sent.absent and there:
            yield f"{sent}: there was {there}"
    found = None if event is None else {key: x for key, x in event.items() if key != "label"}
    if found != wanted:
        yield f"{sent} is in the stream at {label} as {found}"


def wrong_answers(
    answered: Sequence[Answered], events: Sequence[Event], collection: Collection
) -> Iterator[str]:
    """Answers that are not those of a sequential index as of the same T."""
    index = SequentialIndex(collection)
    rest = iter([*events, (2**63, {})])
    label, event = next(rest)
    for each in sorted(answered, key=lambda each: each.at):
        while label <= each.at:
            document = event.get("document")
            assert document is None or isinstance(document, dict)
            index.write(label, str(event["id"]), document)
            label, event = next(rest)
        wanted, found = _wanted(each, index), _found(each)
        if wanted != found:
            yield f"{each} has to be {wanted}"


def _wanted(answered: Answered, index: SequentialIndex) -> object:
    if answered.what == "get":
        document = index.documents.get(answered.query)
        return None if document is None else (document.label, document.fields)
    hits = index.search(answered.query, answered.sort)
    if answered.what == "count":
        return len(hits)
    facet = None if answered.facet is None else tuple(index.facet(answered.query, "tags"))
    page = hits[answered.begin : answered.begin + answered.limit]
    return len(hits), tuple(page), facet


def _found(answered: Answered) -> object:
    match answered.what:
        case "get":
            return (answered.hits[0][2], answered.document) if answered.hits else None
        case "count":
            return answered.total
        case "search":
            return answered.total, answered.hits, answered.facet


def by_kind(answered: Sequence[Answered]) -> dict[str, int]:
    """How many answers there are of each kind."""
    counts: defaultdict[str, int] = defaultdict(int)
    for each in answered:
        counts[each.what] += 1
    return dict(counts)
