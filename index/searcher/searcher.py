"""Searcher: the view of an index's outputs that answers searches, each as of a time T.

Input: the outputs of `index.documents.writes.document_flow`, in label order. Output: answers from
one shard, which contains the documents whose ids hash to it. Each searcher also counts the words of
all other documents (`index.search.statistics`), so scores do not depend on the number of shards.
Invariant: an answer as of an applied and retained T is always the same to the last bit, however
often the view was saved, loaded and merged.

The versions of a collection are divided into parts: segment files, and memory segments for newer
versions. For a checkpoint the last memory segment, the tail, is sealed and an empty tail starts; a
forked process then writes the sealed tails to a segment file (`index.searcher.collection`).

A checkpoint names segment files in the searcher's directory. It is valid until the next checkpoint
is published. Therefore only `mark_saved` and `load` remove files, and only those that neither the
valid checkpoint nor a part in use needs.
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
from driftline.engine.events import event_fields, log
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
from driftline.index.search.checkpoint_codec import CheckpointReader
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
    """Return the number of the shard, of `shards` in all, that contains the document with an id."""
    return group_of(id, shards)


class Searcher:
    """One shard of an index, as a `HostedView`; `directory`: for segment files of this shard only.

    `budget`: cost limit of a query (`index.search.matching`). `time`: the outputs below it are
    applied; `since`: the oldest retained T, the first that can be read. `damage`: the first damage
    found in a segment, "" if there is none. A damaged view must be rebuilt: until then it rejects
    requests for watch events and requests that read damaged pages, and saves no checkpoint. It
    renames the damaged file, so that a checkpoint that names this file cannot be loaded.
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
        """Whether merges wait for the next checkpoint, because the last merge failed."""

    def apply(self, time: int, items: Sequence[Item]) -> None:
        """Apply the outputs with label times in [`self.time`, `time`), in label order."""
        for item in items:
            if item.sink == _SINK:
                outcome = outcome_of(item.value)
                # The current schema may lack the collection.
                index = self._collections.get(outcome.collection)
                if index is not None:
                    self._apply_outcome(index, item.label[0], outcome)
        self.time = time

    def _apply_outcome(self, index: CollectionIndex, time: int, outcome: Outcome) -> None:
        match outcome:
            case DocumentVersion():
                try:
                    index.apply(time, outcome)
                except DamagedSegment as error:
                    self._report_damage(error)
            case Watched():
                index.watch(time, outcome)
            case NotWritten():
                pass

    def do_deferred_work(self) -> None:
        """Do some of the work that `apply` deferred; no answer depends on it."""
        for index in self._collections.values():
            index.do_deferred_work()

    # Answers.

    def ask(self, question: Question, pause: PauseHook = no_pause) -> Answer:
        """Answer as of `question["at"]`, by default as of the newest T. Raises ApiError.

        `pause`: called repeatedly meanwhile; it may call `ask` for another question.
        """
        request = read_question(question)
        name, time = request.collection, self.time if request.at is None else request.at
        oldest_read = time
        if isinstance(request, EventsQuestion):
            oldest_read = min(time, request.since)
        if oldest_read < self.since:
            refused = RetentionExceeded.of("the index", self.since)
            raise ApiError("retained", str(refused), {"oldest": self.since})
        if time > self.time:
            raise ApiError(
                "unavailable",
                f"the index has writes up to {format_time(self.time)} only: retry later, or read "
                "as of an earlier T",
            )
        index = self._collections.get(name)
        if index is None:
            names = ", ".join(self._collections)
            raise ApiError(
                "absent", f"there is no collection {short_repr(name)}; there are {names}"
            )
        if self.damage and isinstance(request, EventsQuestion):
            raise ApiError("unavailable", f"{self.damage}: retry after the rebuild")
        context = QuestionContext(
            request, index.collection, index.shard, index.watches, time, pause
        )
        try:
            return _answer_or_verify(context, index.segments)
        except DamagedSegment as error:
            self._report_damage(error)
            raise ApiError("unavailable", f"{error}: retry after the rebuild") from None

    def forget_before(self, since: int) -> None:
        """Drop the history before `since`, and reject later reads of it.

        A `since` larger than `self.time` has the effect of `self.time`.
        """
        self.since = max(self.since, min(since, self.time))
        for index in self._collections.values():
            index.forget_before(self.since)

    # Checkpoints.

    def freeze(self) -> None:
        """Seal all tails. The process then forks, and `save` runs in the copy."""
        for index in self._collections.values():
            index.freeze()
        self._pending_files = self._files_in_use()

    def save(self) -> Iterator[bytes]:
        """Write sealed tails to files; yield all other state in parts. Raises Unavailable."""
        if self.damage:
            raise Unavailable(f"no checkpoint is saved: {self.damage}")
        yield pack((_FORMAT, *self._shard_identity, self._fingerprints, self.time, self.since))
        for index in self._collections.values():
            yield from index.save()

    def mark_saved(self) -> None:
        """Replace sealed tails by the files just saved, and remove files no longer needed."""
        self._is_merge_paused = False
        self._checkpoint_files = self._pending_files
        try:
            for index in self._collections.values():
                index.mark_saved()
        except (DamagedSegment, OSError) as error:
            fields = event_fields("checkpoint-unused", reason=str(error))
            log.warning(
                "cannot use a segment just written: %s; the next checkpoint writes its versions "
                "again",
                error,
                extra=fields,
            )
            return
        self._files.sweep(self._checkpoint_files | self._files_in_use())

    def load(self, parts: Iterable[bytes]) -> None:
        """Restore a saved view. Raises SnapshotDamaged.

        A collection of the schema that the checkpoint lacks stays empty.
        """
        reader = CheckpointReader(parts)
        match reader.row():
            case (str(saved_format), *identity, tuple(fingerprints), int(time), int(since)) if (
                saved_format == _FORMAT
                and tuple(identity) == self._shard_identity
                and set(fingerprints) <= set(self._fingerprints)
            ):
                self.time, self.since = time, since
            case _:
                raise SnapshotDamaged(
                    "the checkpoint of the index is of another schema, shard or version of "
                    "Driftline; the index is rebuilt from the journal"
                )
        for name, _ in fingerprints:
            self._collections[name].load(reader)
        self._checkpoint_files = self._files_in_use()
        self._files.sweep(self._checkpoint_files)

    def _files_in_use(self) -> frozenset[str]:
        """Return the names of the files in use, and of those that `save` or a merge is writing."""
        names = {name for index in self._collections.values() for name in index.file_names}
        return frozenset(names | {self._merging[0]} if self._merging else names)

    # Merging.

    def next_job(self) -> BackgroundJob | None:
        """Return a merge job, if one is due."""
        if self._merging is not None:  # `_use_merged` was not called, so the last merge failed
            renamed = [segment.path for segment in self._merging[1] if not segment.path.exists()]
            if renamed:
                self._set_damage(f"{renamed[0]} is damaged; the index is rebuilt from the journal")
            self._merging, self._is_merge_paused = None, True
        if self._is_merge_paused or self.damage:
            return None
        for index in self._collections.values():
            if segments := index.segments_to_merge():
                name = self._files.new()
                path = self._files.path(name)
                keep_mask = index.readable_mask(segments)
                self._merging = name, segments
                return BackgroundJob(
                    "merge segments of the index",
                    partial(_merge, segments, path, keep_mask),
                    partial(self._use_merged, index, segments, path, keep_mask),
                )
        return None

    def _use_merged(
        self,
        index: CollectionIndex,
        segments: Sequence[Segment],
        path: Path,
        keep_mask: NDArray[np.bool_],
    ) -> None:
        """Replace segments by the merged one at `path`."""
        self._merging = None
        try:
            index.shard.replace_parts(segments, Segment(path), keep_mask)
        except (DamagedSegment, OSError) as error:
            self._is_merge_paused = True
            fields = event_fields("segment-unused", path=str(path), reason=str(error))
            log.warning(
                "cannot use the merged segment %s: %s; the old segments stay in use",
                path,
                error,
                extra=fields,
            )

    def _report_damage(self, error: DamagedSegment) -> None:
        """Record damage, and rename the damaged file."""
        self._set_damage(str(error))
        quarantine(error.path)

    def _set_damage(self, problem: str) -> None:
        """Record and log the first damage."""
        if not self.damage:
            self.damage = problem
            log.error("%s", problem, extra=event_fields("segment-damaged", reason=problem))

    def figures(self) -> Mapping[str, float]:
        """Return figures for status and metrics; those of postings cover only segment files."""
        shards = [index.shard for index in self._collections.values()]
        segments = [segment for index in self._collections.values() for segment in index.segments]
        postings = sum(segment.postings_count for segment in segments)
        without_positions = sum(segment.bytes_without_positions for segment in segments)
        with_positions = without_positions + sum(segment.positions_bytes for segment in segments)
        versions = sum(shard.versions for shard in shards)
        return {
            "documents": sum(shard.live_count for shard in shards),
            "versions": versions,
            "segments": len(segments),
            "segment_bytes": sum(segment.file_size for segment in segments),
            "postings": postings,
            "postings_bytes": with_positions,
            "bytes_per_posting": with_positions / postings if postings else 0.0,
            "bytes_per_posting_without_positions": without_positions / postings
            if postings
            else 0.0,
            **_sums_by_name(index.watches.figures() for index in self._collections.values()),
            "tail_versions": versions - sum(segment.count for segment in segments),
        }


def _answer_or_verify(context: QuestionContext, segments: Iterable[Segment]) -> Answer:
    """Answer a question; after an unexpected error, verify all segments to find damage.

    Raises ApiError, DamagedSegment.
    """
    try:
        return to_message(answer_to(context))
    except DriftlineError:
        raise
    except Exception:  # a page may be damaged when it is read from disk again after its check
        for segment in segments:
            segment.verify()
        raise


def _sums_by_name(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for each in figures:
        sums.update(each)
    return dict(sums)


def _merge(segments: Sequence[Segment], path: Path, keep_mask: NDArray[np.bool_]) -> None:
    """Merge segments into one file; rename a damaged one. Raises DamagedSegment, Unavailable."""
    try:
        with translate_os_errors("segment", path):
            write(segments, path, keep_mask)
    except DamagedSegment as error:
        quarantine(error.path)
        raise
