"""Check a client history against a sequential index to which all writes are applied in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from driftline.index.documents.schema import Collection
from tests.index.truth.client_history import ClientHistory, ReadResult, WriteAttempt
from tests.index.truth.model import SequentialIndex
from tests.index.truth.watch_events import Event, event_errors

SHOWN = 10
"""Maximum number of errors in the assertion message."""


def check(
    history: ClientHistory,
    events: Sequence[Event],
    collection: Collection,
    streams: Mapping[str, Sequence[Event]],
) -> None:
    """Raise an AssertionError if a write, a read or an event is wrong.

    `events`: the whole change stream; `streams`: the event stream of each watch.
    """
    errors = [
        *history.errors,
        *write_errors(history, events),
        *read_errors(history.reads, events, collection),
        *event_errors(history.watch_changes, streams, events, collection),
    ]
    more = f"\n... and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
    assert not errors, "\n" + "\n".join(errors[:SHOWN]) + more


def write_errors(history: ClientHistory, events: Sequence[Event]) -> Iterator[str]:
    """Yield deviations of the change stream from the writes in the history.

    Each acknowledged write occurs once, at its label. Each unacknowledged one occurs at most once.
    The stream contains nothing else.
    """
    labels = [label for label, _ in events]
    if labels != sorted(set(labels)):
        yield "labels of the stream do not ascend"
    by_mark = {write.mark: write for write in history.writes}
    acknowledged = {write.label: write for write in history.writes if write.label}
    unacknowledged_deletes = Counter(
        write.id for write in history.writes if write.kind == "delete" and not write.label
    )
    events_by_label = dict(events)
    occurrences: Counter[str] = Counter()
    current_labels: dict[str, int] = {}
    for label in sorted({*labels, *acknowledged}):
        event, write = events_by_label.get(label), acknowledged.get(label)
        if event is not None and write is None:
            write = _unacknowledged(event, by_mark, unacknowledged_deletes)
        if write is None:
            yield f"no client sent the write of the event at {label}: {event}"
            continue
        yield from _write_error(label, write, event, current_labels.get(write.id, 0))
        occurrences[write.mark] += 1
        if occurrences[write.mark] > 1 or write.label not in (0, label):
            yield f"{write} occurs again in the stream at {label}: {event}"
        if event is not None:
            current_labels[write.id] = label if write.kind == "put" else 0


def _unacknowledged(
    event: Mapping[str, object],
    by_mark: Mapping[str, WriteAttempt],
    unacknowledged_deletes: Counter[str],
) -> WriteAttempt | None:
    """Return the unacknowledged write that caused an event."""
    id = str(event["id"])
    document = event.get("document")
    if isinstance(document, dict):
        return by_mark.get(str(document["mark"]))
    unacknowledged_deletes[id] -= 1
    return (
        WriteAttempt("delete", id, f"a deletion of {id}, {unacknowledged_deletes[id]}", None)
        if unacknowledged_deletes[id] >= 0
        else None
    )


def _write_error(
    label: int, write: WriteAttempt, event: Mapping[str, object] | None, current: int
) -> Iterator[str]:
    """Yield errors of one write; `current`: the label of the version that it replaced, or 0."""
    if write.expected is not None and write.expected != current:
        yield f"the condition did not hold at {label}: the label was {current}: {write}"
    if write.kind == "put":
        expected: object = {"id": write.id, "document": write.document}
    else:
        expected = {"id": write.id, "deleted": True} if current else None
        if write.absent and current:
            yield f"answered `absent` although version {current} existed: {write}"
    found = None if event is None else {key: x for key, x in event.items() if key != "label"}
    if found != expected:
        yield f"{write} occurs in the stream at {label} as {found}"


def read_errors(
    reads: Sequence[ReadResult], events: Sequence[Event], collection: Collection
) -> Iterator[str]:
    """Yield reads whose answers differ from those of a sequential index as of the same T."""
    index = SequentialIndex(collection)
    rest = iter([*events, (2**63, {})])
    label, event = next(rest)
    for each in sorted(reads, key=lambda each: each.at):
        while label <= each.at:
            document = event.get("document")
            assert document is None or isinstance(document, dict)
            index.write(label, str(event["id"]), document)
            label, event = next(rest)
        expected, found = _expected_answer(each, index), _answer_of(each)
        if expected != found:
            yield f"{each}: expected {expected}"


def _expected_answer(read: ReadResult, index: SequentialIndex) -> object:
    if read.what == "get":
        document = index.documents.get(read.query)
        return None if document is None else (document.label, document.fields)
    hits = index.search(read.query, read.sort)
    if read.what == "count":
        return len(hits)
    facet = None if read.facet is None else tuple(index.facet(read.query, "tags"))
    page = hits[read.begin : read.begin + read.limit]
    return len(hits), tuple(page), facet


def _answer_of(read: ReadResult) -> object:
    match read.what:
        case "get":
            return (read.hits[0][2], read.document) if read.hits else None
        case "count":
            return read.total
        case "search":
            return read.total, read.hits, read.facet


def by_kind(reads: Sequence[ReadResult]) -> dict[str, int]:
    """Return the number of reads of each kind."""
    counts: defaultdict[str, int] = defaultdict(int)
    for each in reads:
        counts[each.what] += 1
    return dict(counts)
