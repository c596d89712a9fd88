"""Consumers of a measured Driftline: what they take of a bundle is what the meter counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from driftline.engine.sinks.consumer import NO_BUNDLE, Last
from driftline.engine.wire.bundles import payload_columns
from driftline.engine.wire.messages import Bundle


class PassingConsumer:
    """Passes outputs on, and remembers the last bundle of each barrier in memory."""

    def __init__(self) -> None:
        self._last: dict[str, Last] = {}

    def deliver(self, bundle: Bundle) -> None:
        """Pass a bundle on, then remember it."""
        self.take(bundle)
        self._last[bundle.barrier] = Last(bundle.t_last, bundle.checksum, bundle.blobs)

    def take(self, bundle: Bundle) -> None:
        """Handle the outputs of a bundle."""
        raise NotImplementedError

    def last(self, barrier: str, groups: tuple[int, int]) -> Last:
        """The last bundle of a barrier."""
        return self._last.get(barrier, NO_BUNDLE)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def words_by_document(bundle: Bundle) -> Iterator[tuple[str, Sequence[object]]]:
    """(id, words) of the changes in a bundle; an id comes again if its changes are apart."""
    for blob in bundle.blobs:
        words, ids, _, _ = payload_columns(blob, 4)
        start = 0
        for document, outputs in groupby(ids):  # several documents under policies without order
            end = start + len(list(outputs))
            yield str(document), words[start:end]
            start = end
