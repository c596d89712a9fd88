"""Numbers that change with time, and what each was as of every retained time.

    >>> count = History()
    >>> count.add(10, 1)
    >>> count.add(20, 1)
    >>> [count.before(time) for time in (10, 11, 21)]
    [0, 1, 2]

Invariant: what `before` says of a time does not change by later additions, and not by `retain` of
an earlier or the same time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile

from driftline.engine.wire.codec import pack
from driftline.index.search.saving import Saved, of_dictionary, of_numbers

TRIMMED_EVERY = 64
"""Changes of one word after which its history is trimmed."""

FORGETS = 256
"""After so many words that were added, histories of twice as many are looked through."""


class History:
    """The sums of a number, by time."""

    __slots__ = ("_sums", "_times")

    def __init__(self, before: int = 0) -> None:
        self._times = array("q")
        self._sums = array("q", [before])
        """The sum before the first time, then after each time."""

    def add(self, time: int, number: int) -> None:
        """Add a number. Precondition: no later time was added."""
        times, sums = self._times, self._sums
        if times and times[-1] == time:
            sums[-1] += number
        else:
            times.append(time)
            sums.append(sums[-1] + number)

    def before(self, time: int) -> int:
        """The sum of what was added at earlier times. Precondition: the time is retained."""
        return self._sums[bisect_left(self._times, time)]

    def retain(self, since: int) -> None:
        """Forget what the number was before a time."""
        keep = bisect_left(self._times, since)
        del self._times[:keep], self._sums[:keep]

    def save(self) -> Iterator[bytes]:
        """The history as it is, in parts."""
        yield from of_numbers(self._times)
        yield from of_numbers(self._sums)

    @classmethod
    def load(cls, saved: Saved) -> History:
        """The history that was saved. Raises SnapshotDamaged."""
        times, sums = saved.numbers(), saved.numbers()
        if len(sums) != len(times) + 1:
            raise Saved.damaged()
        return cls._of(times, sums)

    @classmethod
    def _of(cls, times: array[int], sums: array[int]) -> History:
        history = cls.__new__(cls)
        history._times, history._sums = times, sums
        return history

    def __len__(self) -> int:
        """How many changes are retained."""
        return len(self._times)

    @property
    def changed(self) -> int:
        """When it was added to last; -1: not since the retained times begin."""
        return self._times[-1] if self._times else -1

    @property
    def now(self) -> int:
        """The sum of all that was added."""
        return self._sums[-1]


class Counts:
    """A count for each word; only of words whose count has changed lately there is a history.

    What is not retained is forgotten little by little, as words are added: at once it would be all
    words of the time since the last checkpoint, and answers would wait for it.
    """

    def __init__(self) -> None:
        self._settled: dict[str, int] = {}
        """What does not change any more as of retained times."""
        self._changing: dict[str, History] = {}
        """In the order of their last changes."""
        self._since = 0
        self._added = 0
        """Words since others were forgotten."""

    def add(self, time: int, words: Sequence[str], number: int) -> None:
        """Add a number to the count of each word. Precondition: no later time was added."""
        settled, changing = self._settled, self._changing
        for word in words:
            history = changing.pop(word, None)
            if history is None:
                history = History(settled.pop(word, 0))
            changing[word] = history
            history.add(time, number)
            if not len(history._times) % TRIMMED_EVERY:  # a word that changes again and again
                history.retain(self._since)
        self._added += len(words)
        if self._added >= FORGETS:  # to find the first ones takes some 10 µs
            self._forget(2 * self._added)
            self._added = 0

    def before(self, word: str, time: int) -> int:
        """The count of a word before a time that is retained."""
        history = self._changing.get(word)
        return self._settled.get(word, 0) if history is None else history.before(time)

    def retain(self, since: int) -> None:
        """What the counts were before a time is not asked for any more."""
        self._since = max(self._since, since)

    def save(self) -> Iterator[bytes]:
        """The counts as of retained times, in parts."""
        self._forget(len(self._changing))
        for history in self._changing.values():
            history.retain(self._since)
        yield pack(self._since)
        yield from of_dictionary(self._settled)
        histories = self._changing.values()
        yield from of_dictionary({word: len(self._changing[word]) for word in self._changing})
        yield from of_numbers(_joined(history._times for history in histories))
        yield from of_numbers(_joined(history._sums for history in histories))

    @classmethod
    def load(cls, saved: Saved) -> Counts:
        """The counts that were saved. Raises SnapshotDamaged."""
        counts = cls()
        counts._since = saved.number()
        counts._settled = saved.dictionary()
        sizes = saved.dictionary()
        times, sums = saved.numbers(), saved.numbers()
        end = sum(sizes.values())
        if len(times) != end or len(sums) != end + len(sizes):
            raise Saved.damaged()
        at = 0
        for number, (word, size) in enumerate(sizes.items()):
            end, first = at + size, at + number
            counts._changing[word] = History._of(times[at:end], sums[first : first + size + 1])
            at = end
        return counts

    def _forget(self, most: int) -> None:
        """Forget the histories of words whose count changes no more as of retained times."""
        changing, since = self._changing, self._since
        words = islice(changing, most)
        for word in list(takewhile(lambda word: changing[word].changed < since, words)):
            count = changing.pop(word).now
            if count:
                self._settled[word] = count


def _joined(arrays: Iterable[array[int]]) -> array[int]:
    joined = array("q")
    for each in arrays:
        joined.extend(each)
    return joined
