"""The figures on a terminal are seen however narrow it is."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from driftline.engine.ui.progress import ProgressView


def test_figures_are_seen_in_a_narrow_terminal() -> None:
    out = StringIO()
    view = ProgressView(Console(file=out, width=40, force_terminal=True), [])
    with view:
        view.show_line(f"12 records, 12 outputs, lag 7.0 s, p50 2.1 ms; {'waiting ' * 9}at last")
    for figure in ("12 outputs,", "7.0", "2.1", "at last"):
        assert figure in out.getvalue()
