"""Disks without a safeguard: damaged, not yet durable, and repeated data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import driftline.connectors.sinks.commit_record
import driftline.coordinator.registry
import driftline.engine.snapshots.store
import driftline.engine.storage.segment_log
from driftline.connectors.logs.received import Receipt, ReceivedSource
from driftline.connectors.sinks.jsonl import JsonLinesConsumer
from driftline.deploy.roles.intake import Intake
from driftline.engine.errors import Unavailable
from driftline.engine.wire.role import IOJob


def checksums_are_not_compared() -> AbstractContextManager[object]:
    """Load torn and damaged parts of snapshots."""
    return patch.object(driftline.engine.snapshots.store, "crc32", lambda data: 0)


@contextmanager
def checksums_of_records_are_not_compared() -> Iterator[None]:
    """Accept damaged records in registries, input logs and progress records of consumers."""

    def crc32(data: bytes, before: int = 0) -> int:
        return 0

    with (
        patch.object(driftline.coordinator.registry, "crc32", crc32),
        patch.object(driftline.engine.storage.segment_log, "crc32", crc32),
        patch.object(driftline.connectors.sinks.commit_record, "crc32", crc32),
    ):
        yield


@contextmanager
def lines_are_committed_before_they_are_durable() -> Iterator[None]:
    """Sync only the commit record, not the lines that it covers."""
    append = JsonLinesConsumer._append

    def mutated(self: JsonLinesConsumer, sink: int, length: int, text: bytes) -> None:
        with patch.object(os, "fdatasync", lambda file: None):
            append(self, sink, length, text)

    with patch.object(JsonLinesConsumer, "_append", mutated):
        yield


def records_are_acknowledged_before_they_are_stored() -> AbstractContextManager[object]:
    """Acknowledge records before they are stored: producers forget records that fronts may lose."""
    return patch.object(ReceivedSource, "last_acknowledged", ReceivedSource.last_accepted)


def repeated_records_are_accepted() -> AbstractContextManager[object]:
    """Accept records whose number a front has already received."""
    receive = ReceivedSource.receive

    def mutated(self: ReceivedSource, producer: str, sequence: int, payload: object) -> Receipt:
        self._accepted[producer] = min(self._accepted.get(producer, 0), sequence - 1)
        return receive(self, producer, sequence, payload)

    return patch.object(ReceivedSource, "receive", mutated)


def failed_group_write_counts_as_not_done() -> AbstractContextManager[object]:
    """Treat a failed write of a group as one that had no effect."""
    done = Intake.on_job_done

    def mutated(self: Intake, job: IOJob, result: object) -> None:
        if isinstance(result, Unavailable):
            self.jobs.append(job)
            return
        done(self, job, result)

    return patch.object(Intake, "on_job_done", mutated)
