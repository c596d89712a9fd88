"""The end of a command of the benchmark: whether what was measured did what it has to do."""

from __future__ import annotations

from collections.abc import Iterable

import click


def judge(problems: Iterable[str]) -> None:
    """Tell what was wrong; end with status 1 if anything was."""
    found = list(problems)
    for problem in found:
        click.echo(f"driftline: {problem}", err=True)
    if found:
        click.get_current_context().exit(1)
