"""Progress of Spark's jobs on the console: one bar for each active stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, TaskID

from driftline.engine.ui.consoles import bars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY_S = 0.3


@contextmanager
def shown(spark: SparkSession, console: Console, name: str) -> Iterator[None]:
    """Show the progress of Spark while the body runs, if the console is a terminal."""
    if not console.is_terminal:
        yield
        return
    shown_bars = bars(console, "tasks")
    over = Event()
    watcher = Thread(target=_watch, args=(spark, shown_bars, name, over), daemon=True)
    with shown_bars:
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _watch(spark: SparkSession, shown_bars: Progress, name: str, over: Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    tasks: dict[int, TaskID] = {}
    while not over.wait(LOOK_EVERY_S):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is None:
                continue
            if stage not in tasks:
                tasks[stage] = shown_bars.add_task(f"{name}, stage {stage}", total=info.numTasks)
            shown_bars.update(tasks[stage], completed=info.numCompletedTasks)
