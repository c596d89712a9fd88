"""Searcher: the view of an index's outputs that answers searches as of a T.

Input: the outputs of `index.documents.writes.document_flow`, in label order. Output: answers from
one shard, which contains the documents whose ids hash to it. Statistics cover the documents of all
shards, so scores do not depend on the number of shards. Invariant: an answer as of an applied and
retained T is always the same to the last bit, however often the view was saved, loaded and merged.

A checkpoint names segment files in the searcher's directory. It is valid until the next checkpoint
is published, so only `mark_saved` and `load` remove files that no valid checkpoint or part needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftline.engine.durable import translate_os_errors
from driftline.engine.errors import DriftlineError, SnapshotDamaged, Unavailable
from driftline.engine.events import event_fields as event
from driftline.engine.events import log
from driftline.engine.keygroups import group_of
from driftline.engine.texts import format_time
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import pack
from driftline.index.documents.schema import Schema
from driftline.index.documents.values import short_repr
from driftline.index.documents.versions import DocumentVersion
from driftline.index.documents.writes import NotWritten, Outcome, Watched, outcome_of
from driftline.index.postings.merging import write
from driftline.index.postings.sections import DamagedSegment
from driftline.index.postings.segment import Segment
from driftline.index.search.checkpoint_codec import Saved
from driftline.index.search.matching import BUDGET
from driftline.index.searcher.answers import QuestionContext, answer_to
from driftline.index.searcher.collection import CollectionIndex, SegmentFiles, quarantine
from driftline.index.searcher.messages import EventsQuestion, read_question, to_message
from driftline.serve.errors import ApiError, RetentionExceeded
from driftline.serve.views.hosted import Answer, BackgroundJob, PauseHook, Question, no_pause

_FORMAT = "searcher 5"

_SINK = 0
"""Number of the flow's only sink."""


def shard_of(id: str, shards: int) -> int:
    """Return the number of the shard that contains the document with an id."""
    return group_of(id, shards)


class Searcher:
    """One shard of an index, as a `HostedView`; `directory`: for segment files of this shard only.

    `budget`: cost limit of a query. `damage`: the first damage found in a segment, "" if there is
    none. After damage, some questions are rejected, and the view must be rebuilt. The damaged file
    is renamed, so no checkpoint that names it can be loaded.
    """

    def __init__(
        self,
        schema: Schema,
        directory: Path,
        shard: int = 0,
        shards: int = 1,
        *,
        budget: int = BUDGET,
    ) -> None:
        self.time = 0
        self.since = 0
        self.damage = ""
        self._shard_identity = shard, shards
        self._fingerprints = tuple(
            (name, collection.fingerprint()) for name, collection in schema.collections.items()
        )
        self._files = SegmentFiles(directory)
        self._collections = {
            name: CollectionIndex(
                collection, self._files, lambda id: shard_of(id, shards) == shard, budget
            )
            for name, collection in schema.collections.items()
        }
        self._checkpoint_files: frozenset[str] = frozenset()
        """Files that the valid checkpoint names."""
        self._pending_files: frozenset[str] = frozenset()
        """Files that the checkpoint being saved names."""
        self._merging: tuple[str, Sequence[Segment]] | None = None
        """Name of the file that a merge writes, and the segments to merge; None: no merge."""
        self._is_merge_paused = False
        """Whether a merge failed; merging resumes after the next checkpoint."""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        """Apply the outputs with label times in [`self.time`, `time`), in label order."""
        for item in items:
            if item.sink == _SINK:
                outcome = outcome_of(item.value)
                # The current schema may lack the collection.
                holding = self._collections.get(outcome.collection)
                if holding is not None:
                    self._apply_outcome(holding, item.label[0], outcome)
        self.time = time

    def _apply_outcome(self, holding: CollectionIndex, time: int, outcome: Outcome) -> None:
        match outcome:
            case DocumentVersion():
                try:
                    holding.apply(time, outcome)
                except DamagedSegment as error:
                    self._found_damage(str(error))
                    quarantine(error.path)
            case Watched():
                holding.watch(time, outcome)
            case NotWritten():
                pass

    def settle(self) -> None:
        """Do some deferred work that no answer waits for."""
        for holding in self._collections.values():
            holding.settle()

    # Answers.

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Answer:
        """Answer as of `question["at"]`, by default as of the newest T. Raises ApiError.

        `pause`: called repeatedly meanwhile; it may call `ask` for another question.
        """
        asked = read_question(question)
        name, time = asked.collection, self.time if asked.at is None else asked.at
        since = asked.since if isinstance(asked, EventsQuestion) else time
        if min(time, since) < self.since:
            refused = RetentionExceeded.by("the index", self.since)
            raise ApiError("retained", str(refused), {"oldest": self.since})
        if time > self.time:
            raise ApiError(
                "unavailable",
                f"the index has writes up to {format_time(self.time)} only: wait until it has "
                "those that are asked for",
            )
        holding = self._collections.get(name)
        if holding is None:
            there = ", ".join(self._collections)
            raise ApiError(
                "absent", f"there is no collection {short_repr(name)}; there are {there}"
            )
        if self.damage and isinstance(asked, EventsQuestion):
            raise ApiError("unavailable", f"{self.damage}: ask again when it is")
        context = QuestionContext(
            asked, holding.collection, holding.shard, holding.watches, time, pause
        )
        try:
            return _answer_to(context, holding.segments)
        except DamagedSegment as error:
            self._found_damage(str(error))
            quarantine(error.path)
            raise ApiError("unavailable", f"{error}: ask again when it is") from None

    def forget_before(self, since: int) -> None:
        """Stop answering as of times before `since`; a later `since` counts as `self.time`."""
        self.since = max(self.since, min(since, self.time))
        for holding in self._collections.values():
            holding.forget_before(self.since)

    # Checkpoints.

    def freeze(self) -> None:
        """Prepare to save the current state: `save` is called next, in a forked copy."""
        for holding in self._collections.values():
            holding.freeze()
        self._pending_files = self._in_use()

    def save(self) -> Iterator[bytes]:
        """Write sealed tails to files; yield all other state in parts. Raises Unavailable."""
        if self.damage:
            raise Unavailable(f"nothing is saved: {self.damage}")
        yield pack((_FORMAT, *self._shard_identity, self._fingerprints, self.time, self.since))
        for holding in self._collections.values():
            yield from holding.save()

    def mark_saved(self) -> None:
        """Replace sealed tails by the files just saved, and remove files no longer needed."""
        self._is_merge_paused = False
        self._checkpoint_files = self._pending_files
        try:
            for holding in self._collections.values():
                holding.saved()
        except (DamagedSegment, OSError) as error:
            fields = event("checkpoint-unused", reason=str(error))
            log.warning("%s; it is written again with the next checkpoint", error, extra=fields)
            return
        self._files.sweep(self._checkpoint_files | self._in_use())

    def load(self, parts: Iterable[bytes]) -> None:
        """Restore a saved view. A collection that the checkpoint lacks is empty. Raises
        SnapshotDamaged."""
        saved = Saved(parts)
        match saved.row():
            case (str(form), *kind, tuple(fingerprints), int(time), int(since)) if (
                form == _FORMAT
                and tuple(kind) == self._shard_identity
                and set(fingerprints) <= set(self._fingerprints)
            ):
                self.time, self.since = time, since
            case _:
                raise SnapshotDamaged(
                    "the checkpoint of the index is of another schema, shard or version of "
                    "Driftline; everything is rebuilt from the journal"
                )
        for name, _ in fingerprints:
            self._collections[name].load(saved)
        self._checkpoint_files = self._in_use()
        self._files.sweep(self._checkpoint_files)

    def _in_use(self) -> frozenset[str]:
        names = {name for holding in self._collections.values() for name in holding.names}
        return frozenset(names | {self._merging[0]} if self._merging else names)

    # Tidying up.

    def next_job(self) -> BackgroundJob | None:
        """Return a merge job, if one is due."""
        if self._merging is not None:  # `_merged` was not called, so the last merge failed
            lost = [segment.path for segment in self._merging[1] if not segment.path.exists()]
            if lost:
                self._found_damage(f"{lost[0]} is damaged; the index is rebuilt from the journal")
            self._merging, self._is_merge_paused = None, True
        if self._is_merge_paused or self.damage:
            return None
        for holding in self._collections.values():
            if segments := holding.segments_to_merge():
                name = self._files.new()
                path = self._files.path(name)
                kept = holding.needed(segments)
                self._merging = name, segments
                return BackgroundJob(
                    "merge segments of the index",
                    partial(_merge, segments, path, kept),
                    partial(self._merged, holding, segments, path, kept),
                )
        return None

    def _merged(
        self,
        holding: CollectionIndex,
        segments: Sequence[Segment],
        path: Path,
        kept: NDArray[np.bool_],
    ) -> None:
        self._merging = None
        try:
            holding.shard.replace_parts(segments, Segment(path), kept)
        except (DamagedSegment, OSError) as error:
            self._is_merge_paused = True
            fields = event("segment-unused", path=str(path), reason=str(error))
            log.warning("%s was just written, and is not used: %s", path, error, extra=fields)

    def _found_damage(self, problem: str) -> None:
        if not self.damage:
            self.damage = problem
            log.error("%s", problem, extra=event("segment-damaged", reason=problem))

    def figures(self) -> Mapping[str, float]:
        """Return figures for status and metrics; figures of postings cover only segments."""
        shards = [holding.shard for holding in self._collections.values()]
        segments = [
            segment for holding in self._collections.values() for segment in holding.segments
        ]
        postings = sum(segment.postings_count for segment in segments)
        without_positions = sum(segment.postings_bytes for segment in segments)
        size = without_positions + sum(segment.positions_bytes for segment in segments)
        versions = sum(shard.versions for shard in shards)
        return {
            "documents": sum(shard.live_count for shard in shards),
            "versions": versions,
            "segments": len(segments),
            "segment_bytes": sum(segment.file_size for segment in segments),
            "postings": postings,
            "postings_bytes": size,
            "bytes_per_posting": size / postings if postings else 0.0,
            "bytes_per_posting_without_positions": without_positions / postings
            if postings
            else 0.0,
            **_summed(holding.watches.figures() for holding in self._collections.values()),
            "tail_versions": versions - sum(segment.count for segment in segments),
        }


def _answer_to(asked: QuestionContext, segments: Iterable[Segment]) -> Answer:
    """Answer a question. Raises ApiError, DamagedSegment."""
    try:
        return to_message(answer_to(asked))
    except DriftlineError:
        raise
    except Exception:  # a page may be damaged when it is read from disk again after its check
        for segment in segments:
            segment.verify()
        raise


def _summed(some: Iterable[Mapping[str, float]]) -> dict[str, float]:
    summed: Counter[str] = Counter()
    for each in some:
        summed.update(each)
    return dict(summed)


def _merge(segments: Sequence[Segment], path: Path, kept: NDArray[np.bool_]) -> None:
    """Merge segments into one file; rename a damaged one. Raises DamagedSegment, Unavailable."""
    try:
        with translate_os_errors("segment", path):
            write(segments, path, kept)
    except DamagedSegment as error:
        quarantine(error.path)
        raise
