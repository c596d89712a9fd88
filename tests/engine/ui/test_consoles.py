"""Consoles: reports take one line, and figures stay visible in a narrow terminal."""

from io import StringIO

from rich.console import Console

from driftline.engine.ui.consoles import (
    ProgressView,
    print_report,
)


def test_a_report_is_one_line_however_narrow_the_console() -> None:
    out = StringIO()
    print_report(
        Console(file=out, width=10), {"records": 12, "bad_records": 0, "records_per_s": 1.5}
    )
    assert out.getvalue() == "12 records, 0 bad records, 1.5 records per s\n"


def test_figures_are_seen_in_a_narrow_terminal() -> None:
    out = StringIO()
    view = ProgressView(Console(file=out, width=40, force_terminal=True), [])
    with view:
        view.show_line(f"12 records, 12 outputs, lag 7.0 s, p50 2.1 ms; {'waiting ' * 9}at last")
    for figure in ("12 outputs,", "7.0", "2.1", "at last"):
        assert figure in out.getvalue()
