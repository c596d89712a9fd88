"""What a call of a command reports: how it goes on from an earlier one, and its figures at the end.

`Resuming` takes the registry as the earlier call has left it, and gives one log line, or none at
the first call. `RunReport` and `ReferenceReport` are figures of one call that is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from signal import Signals as Signal

from driftline.connectors.logs.received import ReceivedSource
from driftline.coordinator.registry import ClusterState
from driftline.deploy.local.ending import How, how_ended
from driftline.engine.events import about, log
from driftline.engine.policy import Policy
from driftline.engine.sources import RetainedSource, Source
from driftline.engine.texts import counted, time_in_words


@dataclass(frozen=True, slots=True)
class RunReport:
    """Figures of a run that is over."""

    records: int
    """Records that this call has read, without those that wait."""
    outputs: int
    """Outputs that this call has delivered, without dead letters."""
    seconds: float
    kills: int
    restarts: int
    bad_records: int
    """Records that could not be read, that this call has set aside."""
    dead_letters: int
    """Elements whose function failed, that this call has set aside."""
    waiting: Mapping[str, int]
    """Input -> records that wait in its log for the next call."""
    ended_by: Signal | None = None
    """The signal that has ended the run before its input; None if the input has ended."""

    def as_json(self) -> dict[str, object]:
        """The report of `--json`, but for what waits."""
        return {
            "records": self.records,
            "outputs": self.outputs,
            "seconds": round(self.seconds, 3),
            "kills": self.kills,
            "restarts": self.restarts,
            "bad_records": self.bad_records,
            "dead_letters": self.dead_letters,
        }


@dataclass(frozen=True, slots=True)
class ReferenceReport:
    """Figures of the reference interpreter, as those of a run."""

    records: int
    outputs: int
    bad_records: int
    dead_letters: int

    def as_json(self) -> dict[str, object]:
        """The report of `--json`."""
        return asdict(self)


def tell_if_all_set_aside(
    records: int, outputs: int, dead_letters: int, bad_records: int, where: Path | str
) -> None:
    """Warn of a call without any output, as nothing that it has read was good.

    The figures are those of the call, as in `RunReport`; `where`: the place of what was set aside.
    """
    if outputs or not dead_letters + bad_records or dead_letters < records:
        return
    log.warning(
        "there is no output: %s read, and %s and %s set aside. Is a function wrong, or the way in "
        "which the input is read? The reasons are in %s",
        counted(records, "good record"),
        counted(dead_letters, "failed element"),
        counted(bad_records, "bad record"),
        where,
        extra=about(
            "all-set-aside",
            records=records,
            dead_letters=dead_letters,
            bad_records=bad_records,
            directory=str(where),
        ),
    )


_HOW = {
    How.ASKED: "the call before was asked to end, and ended in good order",
    How.COMPLETE: "the call before came to the end of its input",
    How.FAILED: "the call before ended with an error",
    How.INTERRUPTED: "the call before did not end in good order",
}


def last_sign(state: Path) -> float | None:
    """When the registry of a run was last written, in seconds since 1970; None: there is none."""
    try:
        return (state / "registry").stat().st_mtime
    except OSError:
        return None


class Resuming:
    """How one call goes on. Precondition: the run is open, and no process of this call runs."""

    def __init__(self, before: ClusterState, policy: Policy, sign: float | None) -> None:
        """`before`: what the registry holds; `sign`: what `last_sign` gave before this call wrote
        anything."""
        self._before = before
        self._how = how_ended(before)
        self._policy = policy
        self._sign = sign
        self._inputs: list[str] = []
        self._records: int | None = 0

    def start(self, number: int, source: Source | RetainedSource) -> int:
        """The time from which on the front of input `number` will read."""
        if not self._policy.replay:
            return max(1, source.trimmed) if isinstance(source, RetainedSource) else 1
        snapshots = self._before.snapshots
        return max(1, snapshots[0].offsets[number]) if snapshots else 1

    def read(self, number: int, source: Source | RetainedSource, used: int | None) -> None:
        """Note an input. `used`: the last record that earlier calls have used, if they noted it."""
        start, records = self.start(number, source), None
        since = f"from {time_in_words(start)} on" if start > 1 else "from the beginning"
        if isinstance(source, ReceivedSource):
            records = source.stored_from(start)
            verb = "is" if records == 1 else "are"
            text = f"{counted(records, 'stored record')} of {source.name} {verb} read {since}"
        else:
            well = self._how in (How.ASKED, How.COMPLETE)
            if used is not None and well and self._policy.replay:  # else nothing is noted
                records = max(0, used + 1 - start)
            which = (
                source.name if records is None else f"{counted(records, 'record')} of {source.name}"
            )
            text = f"{which} {'is' if records in (None, 1) else 'are'} read again {since}"
        if records == 0:
            text = f"nothing of {source.name} is read again"
        self._inputs.append(text)
        known = records is not None and self._records is not None
        self._records = (self._records or 0) + (records or 0) if known else None

    def tell(self, now: float) -> None:
        """Tell how this call goes on, unless it is the first one; `now`: in seconds since 1970."""
        before = self._before
        if not before.incarnation:
            return  # no call has come so far that it has read anything
        number = before.snapshots[0].number if before.snapshots else 0
        without = "without a snapshot" if self._policy.replay else "with an empty state"
        sign, ago = self._sign or now, max(0.0, now - (self._sign or now))
        log.info(
            "goes on %s; %s (its last sign: %s, %s ago); %s",
            f"from snapshot {number}" if number else without,
            _HOW[self._how],
            datetime.fromtimestamp(sign).isoformat(" ", "seconds"),
            _span(ago),
            "; ".join(self._inputs),
            extra=about(
                "resumed",
                snapshot=number,
                ended=self._how.value,
                records_again=self._records,
                last_sign_s_ago=ago,
            ),
        )


def _span(seconds: float) -> str:
    """A span of time, for people: "45 s", "1 min 45 s", "2 h 0 min", "3 d 1 h"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
