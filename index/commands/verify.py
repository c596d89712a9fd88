"""The command `driftline verify`, which also checks the state directory of a service."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from driftline.deploy.commands.verify import verify_command
from driftline.engine.errors import MalformedMessage, SnapshotDamaged, Unavailable
from driftline.engine.wire.codec import unpack
from driftline.index.commands.definition import check_definition
from driftline.serve.running.verification import inspect_service

_SEGMENT_NAME = re.compile(r"\d{8,}\.segment", re.ASCII)


def check_segments(directory: Path, parts: Iterable[bytes]) -> int:
    """Verify the segment files that a checkpoint names, and return their number.

    `directory`: of the segment files; `parts`: parts of the checkpoint. Returns 0 for views without
    segment files. Raises SnapshotDamaged, OSError; Unavailable if numpy is not installed.
    """
    rows = map(_row, parts)
    is_searcher = _is_searcher(next(rows, None))
    names = dict(pair for row in rows if is_searcher for pair in _segment_entries(row))
    if not names:
        return 0
    try:  # without segments, `verify` also works if the extra `index` is not installed
        from driftline.index.postings.sections import DamagedSegment, Sections, UnsupportedFormat
    except ModuleNotFoundError as error:
        problem = f"checking the segments of an index needs {error.name}"
        raise Unavailable(f"{problem}: pip install 'driftline[index]'") from None
    for name, checksum in names.items():
        path = directory / name
        if not path.exists():
            raise SnapshotDamaged(f"{path} is missing")
        try:
            sections = Sections(path)
            sections.verify()
        except (DamagedSegment, UnsupportedFormat) as error:
            raise SnapshotDamaged(error.problem) from None
        if sections.checksum != checksum:
            raise SnapshotDamaged(f"{path} is not the file that the checkpoint names")
    return len(names)


def _row(part: bytes) -> object:
    try:
        return unpack(part)
    except MalformedMessage:
        raise SnapshotDamaged("a part of the checkpoint is damaged") from None


def _is_searcher(row: object) -> bool:
    """Return whether the first row of a checkpoint is the one that `Searcher.save` writes."""
    match row:
        case (str(file_format), *_):
            return file_format.startswith("searcher ")
    return False


def _segment_entries(row: object) -> Iterator[tuple[str, int]]:
    """Yield the segment names and checksums in a row; only the first row that
    `CollectionIndex.save` writes contains any."""
    for each in row if isinstance(row, tuple) else ():
        match each:
            case (str(name), int(checksum)) if _SEGMENT_NAME.fullmatch(name):
                yield name, checksum


verify = verify_command(
    partial(inspect_service, check_files=check_segments, check_definition=check_definition)
)
