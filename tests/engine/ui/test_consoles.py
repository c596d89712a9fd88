"""Consoles: what was done is told in one line, and tables have room where there is no terminal."""

from io import StringIO

from rich.console import Console

from driftline.engine.ui.consoles import (
    ProgressView,
    as_words,
    new_table,
    should_be_zero,
    tell,
    wide_console,
)


def test_a_report_is_one_line_however_narrow_the_console() -> None:
    out = StringIO()
    tell(Console(file=out, width=10), {"records": 12, "bad_records": 0, "records_per_s": 1.5})
    assert out.getvalue() == "12 records, 0 bad records, 1.5 records per s\n"


def test_one_thing_is_not_told_as_several() -> None:
    report = {"records": 1, "seconds": 1.0, "bad_records": 1, "dead_letters": 1, "kills": 2}
    assert as_words(report) == "1 record, 1.0 seconds, 1 bad record, 1 dead letter, 2 kills"


def test_tables_have_room_where_there_is_no_terminal() -> None:
    assert wide_console().width == 140


def test_words_stand_to_the_left_and_figures_to_the_right() -> None:
    table = new_table("Counts", ["word"], ["count"])
    table.add_row("a", should_be_zero(0))
    table.add_row("long word", should_be_zero(12))
    out = StringIO()
    Console(file=out, width=40).print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]
    assert lines[0].split() == ["Counts"]
    assert [line.split() for line in lines[3:]] == [["a", "0"], ["long", "word", "12"]]
    assert lines[3].startswith("  a ")
    assert len(lines[3]) == len(lines[4]), "figures end where figures end"


def test_what_should_be_zero_and_is_not_stands_out() -> None:
    assert should_be_zero(0) == "0"
    assert should_be_zero(3) == "[bold red]3[/]"


def test_figures_are_seen_in_a_narrow_terminal() -> None:
    out = StringIO()
    view = ProgressView(Console(file=out, width=40, force_terminal=True), [])
    with view:
        view.show_line(f"12 records, 12 outputs, lag 7.0 s, p50 2.1 ms; {'waiting ' * 9}at last")
    for figure in ("12 outputs,", "7.0", "2.1", "at last"):
        assert figure in out.getvalue()
