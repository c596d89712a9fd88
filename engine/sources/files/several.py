"""Several files as one source: one after the other, and the numbers of the records go on.

A bad record is told with its own file, its number in the whole, and that in the file. Where a file
breaks off, nothing that comes after it is read, as within a file: it could not keep its number.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter

from driftline.engine.sources.files.files import FileSource
from driftline.engine.sources.source import BadRecord


class SeveralFiles:
    """The records of at least two files, in their order.

    Costs: what is before `start` is read to find where a file begins, but every file only once.
    """

    def __init__(self, files: Sequence[FileSource]) -> None:
        self.name = f"{files[0].name} and {len(files) - 1} more"
        self.files = files
        self.sizes = [file.path.stat().st_size for file in files]
        self._begins = [(1, 1)]
        """The numbers of the first row and record of each file, as far as they are known."""
        self._at = 0

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """All records with time >= `start`."""
        first = bisect_right(self._begins, max(1, start), key=itemgetter(1)) - 1
        for number, file in enumerate(self.files[first:], first):
            self._at = number
            row, time = self._begins[number]
            behind = yield from file.numbered(row, time, start)
            if behind is None:
                return
            if len(self._begins) == number + 1:
                self._begins.append(behind)

    def progress(self) -> tuple[int, int] | None:
        """Bytes of the files, as they lie on disk, that the latest read has consumed, and all."""
        done = self.files[self._at].progress()
        return sum(self.sizes[: self._at]) + (done[0] if done is not None else 0), sum(self.sizes)

    def identity(self) -> str:
        """How many files and bytes, and a hash of what each file is (see `FileSource`).

        It is short, as processes are handed it. One more file makes another input.
        """
        of_each = "\n".join(file.identity() for file in self.files)
        digest = hashlib.sha256(of_each.encode()).hexdigest()[:32]
        return f"{len(self.files)} files, {sum(self.sizes)} bytes, {digest}"
