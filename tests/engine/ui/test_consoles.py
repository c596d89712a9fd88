"""Consoles: what was done is told in one line, and tables have room where there is no terminal."""

from io import StringIO

from rich.console import Console

from driftline.engine.ui.consoles import tell, wide_console


def test_a_report_is_one_line_however_narrow_the_console() -> None:
    out = StringIO()
    tell(Console(file=out, width=10), {"records": 12, "bad_records": 0, "records_per_s": 1.5})
    assert out.getvalue() == "12 records, 0 bad records, 1.5 records per s\n"


def test_tables_have_room_where_there_is_no_terminal() -> None:
    assert wide_console().width == 140
