"""Several files as one source: one after the other, with record numbers over all of them.

A bad record names its file, its number in the file, and its number over all files. If a file breaks
off, the files after it are not read: their records could not keep their numbers.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter

from driftline.engine.sources.files.files import FileSource
from driftline.engine.sources.source import BadRecord


class SeveralFiles:
    """The records of at least two files, in their order.

    Cost: `read(start)` reads all files before `start` to count their records, but each only once.
    """

    def __init__(self, files: Sequence[FileSource]) -> None:
        self.name = f"{files[0].name} and {len(files) - 1} more"
        self.files = files
        self.sizes = [file.path.stat().st_size for file in files]
        self._begins = [(1, 1)]
        """(row, record): the numbers of the first ones of each file, as far as they are known."""
        self._at = 0

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """All records with time >= `start`."""
        first = bisect_right(self._begins, max(1, start), key=itemgetter(1)) - 1
        for number, file in enumerate(self.files[first:], first):
            self._at = number
            row, time = self._begins[number]
            after = yield from file.numbered(row, time, start)
            if after is None:
                return
            if len(self._begins) == number + 1:
                self._begins.append(after)

    def place(self, time: int) -> str:
        """Where the record with this time is, for people. Precondition: it has been read."""
        number = bisect_right(self._begins, time, key=itemgetter(1)) - 1
        return self.files[number].place(time - self._begins[number][1] + 1)

    def progress(self) -> tuple[int, int] | None:
        """(bytes on disk that the latest read has consumed, bytes of all files)."""
        done = self.files[self._at].progress()
        return sum(self.sizes[: self._at]) + (done[0] if done is not None else 0), sum(self.sizes)

    def identity(self) -> str:
        """That of the first file: more files may follow later, also after a single one.

        The order of the others shows in the checksum over the records that a run has used.
        """
        return self.files[0].identity()
