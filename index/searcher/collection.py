"""A collection in a searcher: its shard, its segment files, and its watches.

Every searcher has all watches of the collection, and the events of the documents of its shard.

Sealing: for a checkpoint, the tail (the growing memory segment) is sealed and an empty tail starts.
A forked copy of the process writes the sealed tail to a segment file. Once the checkpoint is
durable, the segment replaces the sealed tail. If saving fails, the sealed tail stays in memory, and
the next checkpoint writes it together with the tail that is sealed then.

Merging: segments are merged to bound their number and to drop versions that no query can read any
longer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driftline.engine.durable import make_directory, translate_os_errors
from driftline.engine.errors import MalformedMessage, SnapshotDamaged
from driftline.engine.labels import INFINITY
from driftline.engine.wire.codec import pack
from driftline.index.documents.schema import Collection
from driftline.index.documents.versions import DocumentVersion
from driftline.index.documents.writes import Watched, version_of
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.postings.merging import write
from driftline.index.postings.sections import DamagedSegment, UnsupportedFormat
from driftline.index.postings.segment import Segment
from driftline.index.search.checkpoint_codec import CheckpointReader
from driftline.index.search.shard import Shard
from driftline.index.search.watches import WatchIndex

_FILE = re.compile(r"\.?(?P<name>(?P<number>\d{8,})\.segment)(?:\.\d+)?", re.ASCII)
"""Name of a segment file or of its draft; group `name`: name of the segment file."""


MERGE_RATIO = 2
"""Merge a segment with all later ones if it is at most this many times as large as their total.

Merging bounds the number of segments: each one adds a quarter of a millisecond to a query, however
small it is.
"""

SMALL_MERGE_RATIO = 8
"""Replaces `MERGE_RATIO` for a small segment, whose merge takes some seconds at most."""

SMALL_SIZE_MAX = 4_000_000
"""Largest size of a small segment, in postings and versions."""

FREE_BATCH_WORDS = 512
"""Words per field that `do_deferred_work` frees at a time; a complete tail would take 10 ms."""

WASTE_DIVISOR = 3
"""Rewrite a segment if more than 1 / WASTE_DIVISOR of its versions are no longer readable."""


class CollectionIndex:
    """One collection of a searcher.

    `has`: returns whether documents with an id belong to the searcher's shard; `budget`: cost limit
    of a query (`index.search.matching`).
    """

    def __init__(
        self,
        collection: Collection,
        files: SegmentFiles,
        has: Callable[[str], bool],
        budget: int,
    ) -> None:
        self.collection = collection
        kinds = tuple(field.kind for field in collection.value_fields)
        weights = [field.weight for field in collection.text_fields]
        self.shard = Shard(
            MemorySegment(0, len(collection.text_fields), kinds), weights, has, budget
        )
        self.watches = WatchIndex(
            collection,
            lambda field, word: self.shard.statistics.document_frequency(field, word, INFINITY),
        )
        self._has = has
        self._files = files
        self._sealed: list[MemorySegment] = []
        """Tails that the checkpoint being saved writes to the segment file `_sealed_name`."""
        self._replaced: list[MemorySegment] = []
        """Tails that a segment has replaced, but whose memory is not freed yet."""
        self._sealed_name = ""
        self._since = 0
        """Oldest retained time."""
        self._wasteful: Segment | None = None
        """A segment to rewrite, as too many of its versions are no longer readable."""

    @property
    def segments(self) -> list[Segment]:
        """The parts in files; all parts in memory are newer."""
        return [part for part in self.shard.parts if isinstance(part, Segment)]

    @property
    def file_names(self) -> list[str]:
        """Names of all segment files, including the one that the current checkpoint writes."""
        names = [segment.path.name for segment in self.segments]
        return [*names, self._sealed_name] if self._sealed else names

    def apply(self, time: int, version: DocumentVersion) -> None:
        """Apply the next version, of any shard. Raises MalformedMessage, DamagedSegment.

        After DamagedSegment the version has been applied, but watch events may be missing.
        """
        fields, values = len(self.collection.text_fields), len(self.collection.value_fields)
        if (len(version.fields), len(version.values)) != (fields, values):
            raise MalformedMessage(
                f"a document version does not have the fields of the collection "
                f"{self.collection.name!r}"
            )
        self.shard.apply(time, version)
        if self._has(version.id):
            self.watches.apply(time, version, partial(self._version_before, time, version.id))

    def _version_before(self, time: int, id: str) -> DocumentVersion | None:
        """Return a document's version as of a time, without `replaced`; None if there is none.

        Raises DamagedSegment.
        """
        ordinal = self.shard.find(id, time)
        if ordinal is None:
            return None
        return version_of(self.collection, id, json.loads(self.shard.stored(ordinal)))

    def do_deferred_work(self) -> None:
        """Count the words of the latest versions, and free some memory of replaced tails."""
        self.shard.statistics.count_deferred()
        if self._replaced and not self._replaced[-1].free(FREE_BATCH_WORDS):
            self._replaced.pop()

    def watch(self, time: int, watched: Watched) -> None:
        """Put or remove a watch."""
        if watched.query is None:
            self.watches.remove(time, watched.id)
        else:
            self.watches.put(time, watched.id, watched.query)

    def forget_before(self, since: int) -> None:
        """Forget the data that only reads as of times before `since` need."""
        self.shard.statistics.forget_before(since)
        self.watches.forget_before(since)
        self._since = since
        self._wasteful = next(filter(self._is_wasteful, self.segments), None)

    def _is_wasteful(self, segment: Segment) -> bool:
        readable = int(np.count_nonzero(self.readable_mask([segment])))
        return (segment.count - readable) * WASTE_DIVISOR > segment.count

    # Saving.

    def freeze(self) -> None:
        """Seal the tail. `save` writes it, together with tails whose checkpoint failed."""
        self.shard.seal()
        self._sealed = [part for part in self.shard.parts[:-1] if isinstance(part, MemorySegment)]
        self._sealed_name = self._files.new() if self._sealed else ""

    def save(self) -> Iterator[bytes]:
        """Write the sealed tails to one segment file; yield all other state as checkpoint parts.

        Raises Unavailable.
        """
        segments = self.segments
        if self._sealed:
            path = self._files.path(self._sealed_name)
            with translate_os_errors("segment", path):
                segments.append(write(self._sealed, path))
        yield pack([(segment.path.name, segment.checksum) for segment in segments])
        yield from self.shard.save()
        yield from self.watches.save()

    def mark_saved(self) -> None:
        """Replace the sealed tails by their segment file. Raises DamagedSegment, OSError."""
        sealed, self._sealed = self._sealed, []
        if sealed:
            self.shard.replace_parts(sealed, Segment(self._files.path(self._sealed_name)))
            self._replaced += sealed

    def load(self, reader: CheckpointReader) -> None:
        """Restore saved state. Raises SnapshotDamaged."""
        match reader.row():
            case tuple(rows):
                segments = [self._open(row) for row in rows]
                self.shard.load(reader, segments)
                self.watches.load(reader)
            case _:
                raise reader.damaged()

    def _open(self, row: object) -> Segment:
        """Open a segment that a checkpoint names. Raises SnapshotDamaged."""
        match row:
            case (str(name), int(checksum)):
                path = self._files.path(name)
            case _:
                raise CheckpointReader.damaged()
        try:
            segment = Segment(path)
        except (DamagedSegment, UnsupportedFormat) as error:
            raise SnapshotDamaged(str(error)) from None
        except OSError as error:
            problem = f"{path} cannot be read: {error.strerror}; the index is rebuilt"
            raise SnapshotDamaged(f"{problem} from the journal") from None
        if segment.checksum != checksum:
            raise SnapshotDamaged(
                f"{path} is not the file that the checkpoint names; the index is rebuilt from "
                "the journal"
            )
        return segment

    # Merging.

    def segments_to_merge(self) -> Sequence[Segment]:
        """Return adjacent segments to merge: the newest ones, or one wasteful segment, or none."""
        segments = self.segments
        sizes = [segment.postings_count + segment.count for segment in segments]
        newest = segments[first_to_merge(sizes) :]
        return newest or [each for each in segments if each is self._wasteful]

    def readable_mask(self, segments: Sequence[Segment]) -> NDArray[np.bool_]:
        """Return, per version of adjacent segments, whether a query can still read it."""
        return self.shard.readable_mask(segments, self._since)


def first_to_merge(sizes: Sequence[int]) -> int:
    """Return the index of the first segment to merge with all later ones; `len(sizes)` if none.

    `sizes`: number of postings and versions of each segment. The number of segments grows with the
    logarithm of the total size, and so does the number of times that a version is copied.
    """
    for first in range(len(sizes) - 1):
        ratio = SMALL_MERGE_RATIO if sizes[first] <= SMALL_SIZE_MAX else MERGE_RATIO
        if sizes[first] <= ratio * sum(sizes[first + 1 :]):
            return first
    return len(sizes)


class SegmentFiles:
    """Segment files of a searcher, by name, in a directory that no other searcher uses.

    Each new file has a larger number than all files that the directory has contained since the
    searcher started. A file that a checkpoint names is therefore never overwritten, even if later
    checkpoints fail.
    """

    def __init__(self, directory: Path) -> None:
        """Create the directory if it does not exist. Raises Unavailable."""
        self._directory = directory
        with translate_os_errors("segments", directory):
            make_directory(directory)
            self._number = max((int(match["number"]) for match in self._matches()), default=0)

    def new(self) -> str:
        """Return the name of a new file."""
        self._number += 1
        return f"{self._number:08}.segment"

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self._directory / name

    def sweep(self, needed: Container[str]) -> None:
        """Remove all segments and drafts except those of the files `needed`; ignore OSError.

        The draft of a needed file is removed only once the file itself exists.
        """
        with suppress(OSError):
            for match in list(self._matches()):
                is_draft, path = match[0] != match["name"], self.path(match["name"])
                if match["name"] not in needed or (is_draft and path.exists()):
                    self.path(match[0]).unlink(missing_ok=True)

    def _matches(self) -> Iterator[re.Match[str]]:
        """Yield the match of `_FILE` for each segment and draft in the directory."""
        for path in self._directory.iterdir():
            if match := _FILE.fullmatch(path.name):
                yield match


def quarantine(path: Path) -> None:
    """Rename a damaged file, so that a checkpoint that names it cannot be loaded."""
    with suppress(OSError):
        path.rename(path.with_suffix(".damaged"))
