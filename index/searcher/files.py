"""The segment files of a searcher, by their names in its directory.

Each file has a number that no other one there has had since the searcher began. So a file that a
checkpoint names is never written again, whatever became of the checkpoints after it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path

from driftline.engine.durable import make_directory, reported

_FILE = re.compile(r"\.?(?P<name>(?P<number>\d{8,})\.segment)(?:\.\d+)?", re.ASCII)
"""A segment, or a draft of one that a process was writing."""


class Files:
    """The files in a directory, which has no other owner."""

    def __init__(self, directory: Path) -> None:
        """Make the directory, if it is not there. Raises Unavailable."""
        self._directory = directory
        with reported("segments", directory):
            make_directory(directory)
            self._number = max((int(found["number"]) for found in self._found()), default=0)

    def new(self) -> str:
        """The name of a file that is going to be written."""
        self._number += 1
        return f"{self._number:08}.segment"

    def path(self, name: str) -> Path:
        """Where a file is."""
        return self._directory / name

    def sweep(self, needed: Container[str]) -> None:
        """Remove all other segments, and drafts; what cannot be removed now stays.

        The draft of a file that is needed, and is not there yet, stays, too.
        """
        with suppress(OSError):
            for found in list(self._found()):
                is_draft, path = found[0] != found["name"], self.path(found["name"])
                if found["name"] not in needed or (is_draft and path.exists()):
                    self.path(found[0]).unlink(missing_ok=True)

    def _found(self) -> Iterator[re.Match[str]]:
        for path in self._directory.iterdir():
            if found := _FILE.fullmatch(path.name):
                yield found


def set_aside(path: Path) -> None:
    """Give a damaged file another name: so no checkpoint that names it is used any more."""
    with suppress(OSError):
        path.rename(path.with_suffix(".damaged"))
