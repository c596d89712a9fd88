"""Flows whose functions change stored values, arguments and results."""

from collections.abc import Iterator

from driftline import Context, Flow, ListState, MapState, ReducingState, ValueState
from tests.careless.records import Record, words

# Changed values in states -----------------------------------------------------------------------


def count(
    context: Context, element: tuple[str, object], state: ValueState[dict[str, int]]
) -> Iterator[tuple[str, int]]:
    found = state.get() or {"n": 0}
    found["n"] += 1
    state.set(found)
    yield element[0], found["n"]
    found["n"] = -1  # without effect: it is already stored


def gather(record: Record, state: ValueState[list[object]]) -> tuple[object, object]:
    ids = state.get([])
    ids.append(record["id"])
    state.set(ids)
    return record["key"], ids


def group(
    context: Context,
    record: Record,
    by_word: MapState[object, object],
    seen: ListState[dict[str, object]],
) -> Iterator[object]:
    for word in str(record["text"]).split():
        ids = by_word.setdefault(word, [])
        assert isinstance(ids, list)
        ids.append((record["id"], {"at": len(ids)}))
        by_word[word] = ids
    seen.append(record)
    record["text"] = "changed after it was put"
    seen[-1]["text"] = "changed in vain"
    if len(seen) > 5:
        yield "full", [found["text"] for found in seen]
        seen.clear()
        by_word.popitem()
        by_word.clear()
    yield record["key"], by_word, dict(by_word)


def merge(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    for word, number in other.items():
        one[word] = one.get(word, 0) + number
    return one


def tally(record: Record, total: ReducingState[dict[str, int]]) -> dict[str, int]:
    return total.add(dict.fromkeys(str(record["text"]).split(), 1))


mutable_value = Flow("mutable-value")
mutable_value.source("records").flat_map(words, name="words").key_by(lambda e: e[0]).process(
    count, ValueState[dict[str, int]]("counts"), name="count"
).sink()

mutable_list = Flow("mutable-list")
mutable_list.source("records").key_by("key").scan(
    gather, ValueState[list[object]]("ids"), name="gather"
).sink()

mutable_everywhere = Flow("mutable-everywhere")
mutable_everywhere.source("records").key_by(lambda record: record["key"]).process(
    group,
    MapState[object, object]("by-word"),
    ListState[dict[str, object]]("seen"),
    name="group",
).sink()

mutable_fold = Flow("mutable-fold")
mutable_fold.source("records").key_by("key").scan(
    tally, ReducingState("total", merge), name="tally"
).sink()


# Changed arguments and outputs ------------------------------------------------------------------


def shout(record: Record, number: ReducingState[int]) -> Record:
    record["text"] = f"{record['text']}!"
    record["number"] = number.add(1)
    return record


def picky_shout(record: Record, number: ReducingState[int]) -> Record:
    """Change the argument before raising, in some orders only."""
    shout(record, number)
    if number.get(0) % 3 == 0:
        raise ValueError(f"an awkward number: {record['number']}, {record['text']}")
    return record


def mark(record: Record) -> Record:
    record["text"] = f"marked {record['text']}"
    record.setdefault("marks", []).append(len(record))  # type: ignore[attr-defined]
    return record


def mark_some(record: Record) -> Record:
    mark(record)
    if str(record["text"]).endswith("a"):
        raise ValueError("it ends with an a")
    return record


changed_argument = Flow("changed-argument")
changed_argument.source("records").key_by("key").scan(
    shout, ReducingState[int]("number", int.__add__), name="shout"
).sink()

changed_and_raised = Flow("changed-and-raised")
changed_and_raised.source("records").map(mark_some, name="mark-some").key_by("key").scan(
    picky_shout, ReducingState[int]("number", int.__add__), name="shout"
).map(mark, name="mark").sink()

branches = Flow("branches")
_records = branches.source("records")
_records.map(mark, name="mark").sink("marked")
_shouted = _records.key_by("key").scan(
    shout, ReducingState[int]("number", int.__add__), name="shout"
)
_shouted.map(mark, name="mark-shouted").sink("shouted-and-marked")
_shouted.sink("shouted")

changed_by_key = Flow("changed-by-key")
changed_by_key.source("records").key_by(lambda record: record.pop("key")).scan(
    shout, ReducingState[int]("number", int.__add__), name="shout"
).sink()


def growing(record: Record) -> Iterator[dict[str, object]]:
    """Yield the same dict repeatedly, and clear it at the end."""
    found: dict[str, object] = {"key": record["key"]}
    for word in str(record["text"]).split():
        found[word] = record["id"]
        yield found
    found.clear()


def latest(
    context: Context, found: dict[str, object], last: ValueState[object]
) -> Iterator[dict[str, object]]:
    yield found
    found["last"] = last.get()
    yield found
    last.set(len(found))
    found.clear()


yielded = Flow("yielded")
yielded.source("records").flat_map(growing).key_by("key").process(
    latest, ValueState[object]("last"), name="latest"
).sink()
