"""Reports take one line, figures fit a narrow terminal, a missing matplotlib gives an error."""

from io import StringIO

import pytest
from rich.console import Console

from driftline.engine.errors import Unavailable
from driftline.engine.ui import pictures
from driftline.engine.ui.consoles import ProgressView, print_report


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


def test_error_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'driftline\[bench\]'"):
        pictures.check_matplotlib()
