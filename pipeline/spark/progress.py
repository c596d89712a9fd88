"""Progress of Spark's jobs on the console: one bar for each stage that is at work."""

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
def shown(spark: SparkSession, console: Console, what: str) -> Iterator[None]:
    """Show how far Spark is, as long as the body runs, on a terminal."""
    if not console.is_terminal:
        yield
        return
    shown_bars = bars(console, "tasks")
    over = Event()
    watcher = Thread(target=_watch, args=(spark, shown_bars, what, over), daemon=True)
    with shown_bars:
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _watch(spark: SparkSession, shown_bars: Progress, what: str, over: Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    tasks: dict[int, TaskID] = {}
    while not over.wait(LOOK_EVERY_S):
        for stage in tracker.getActiveStageIds():
            about = tracker.getStageInfo(stage)
            if about is None:
                continue
            if stage not in tasks:
                tasks[stage] = shown_bars.add_task(f"{what}, stage {stage}", total=about.numTasks)
            shown_bars.update(tasks[stage], completed=about.numCompletedTasks)
