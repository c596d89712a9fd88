"""The reports of a run, and of a reference, that is over: figures of one call of the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from signal import Signals as Signal

from driftline.engine.events import about, log
from driftline.engine.texts import counted


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
