"""Samples of all processes of a run (memory, descriptors, threads), and a plot of them."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from driftline.engine.ui.pictures import colours_of, new_figure, save, style_curves

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    process: str
    rss_mib: float
    descriptors: int
    threads: int


@dataclass
class Samples:
    """All samples of one run; its command has the process id `pid`."""

    pid: int = 0
    taken: list[Sample] = field(default_factory=list)

    def take(self, at_s: float) -> None:
        command = psutil.Process(self.pid)
        for process in [command, *command.children(recursive=True)]:
            with suppress(psutil.Error):
                name = "command" if process.pid == self.pid else process.name()
                self.note(at_s, name, process)

    def note(self, at_s: float, name: str, process: psutil.Process) -> None:
        """Take a sample of one process. Raise psutil.Error."""
        with process.oneshot():
            memory = process.memory_info().rss / MIB
            numbers = process.num_fds(), process.num_threads()
        self.taken.append(Sample(at_s, name, memory, *numbers))

    def medians(self, figure: str, since_s: float, until_s: float) -> dict[str, float]:
        """Return the median of a figure of each process in an interval."""
        found: dict[str, list[float]] = defaultdict(list)
        for sample in self.taken:
            if since_s <= sample.at_s < until_s:
                found[sample.process].append(getattr(sample, figure))
        return {name: median(values) for name, values in sorted(found.items())}

    def peaks(self, figure: str) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for sample in self.taken:
            found[sample.process] = max(found[sample.process], getattr(sample, figure))
        return dict(sorted(found.items()))

    def draw(self, path: Path) -> None:
        figures = {"rss_mib": "resident memory, MiB", "descriptors": "files and sockets",
                   "threads": "threads"}  # fmt: skip
        names = sorted({sample.process for sample in self.taken})
        colours = colours_of(names)
        picture = new_figure(8.0, 8.0)
        panels = list(picture.subplots(len(figures), 1, sharex=True))
        for panel, (figure, label) in zip(panels, figures.items(), strict=True):
            for name in names:
                own = [sample for sample in self.taken if sample.process == name]
                panel.plot(
                    [sample.at_s / 60 for sample in own],
                    [getattr(sample, figure) for sample in own],
                    ".", markersize=2, color=colours[name], label=name,
                )  # fmt: skip
            panel.set_ylabel(label)
            panel.set_ylim(bottom=0)
            style_curves(panel)
        panels[0].legend(frameon=False, markerscale=5)
        panels[-1].set_xlabel("minutes")
        save(picture, path)
