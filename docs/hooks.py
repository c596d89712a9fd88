"""MkDocs hooks that complete pages with the text of files, and with references.

Pages can be read as they are, too, in a checkout or on a code host. So what is filled in is a
comment, or a link with a comment behind it:

    [NAME](FILE) <!-- include -->            becomes the text of a file of the repository, with its
                                             relative links rewritten for the page;
    - [`NAME`](FILE) <!-- ::: {OPTIONS} -->  becomes the signature and docstring of a name, with the
                                             options of mkdocstrings, if there are any;
    <!-- commands -->                        becomes the reference of the command line, with the
                                             texts of `--help`.

A link to `PAGE#driftline.NAME` leads to the reference of a name. `mkdocs.yml` names this file.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

import driftline

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "docs" / "index.md"
"""The page that links to the README lead to."""

_INCLUDE = re.compile(r"^\[.+\]\((\S+)\) <!-- include -->$", re.MULTILINE)
_REFERENCE = re.compile(r"^- \[`(\S+)`\]\(\S+\) <!-- ::: ?(\{.*\})? ?-->$", re.MULTILINE)
_COMMANDS = re.compile(r"^<!-- commands -->$", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|[/#])[^)\s]+")
_MARKUP = re.compile(r"([\\*_\[\]#])")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in a page for MkDocs. Raises OSError if an included file is missing."""
    folder = (ROOT / "docs" / page.file.src_uri).parent
    markdown = _INCLUDE.sub(lambda line: _included((folder / line[1]).resolve(), folder), markdown)
    markdown = _REFERENCE.sub(lambda line: _reference(line[1], line[2]), markdown)
    return _COMMANDS.sub(lambda _: "\n".join(_commands()), markdown)


def _included(file: Path, folder: Path) -> str:
    text = file.read_text(encoding="utf-8").rstrip()
    return _LINK.sub(lambda link: _rewritten(link[0], file.parent, folder), text)


def _reference(name: str, options: str | None) -> str:
    """Return the block that mkdocstrings fills in."""
    return f"\n::: {name}\n" + (f"    options: {options}\n" if options else "")


def _rewritten(link: str, before: Path, after: Path) -> str:
    """Rewrite a link that is relative to the folder `before` for a page in the folder `after`."""
    target, _, anchor = link.partition("#")
    file = before / target
    path = os.path.relpath(HOME if file == ROOT / "README.md" else file, after)
    return f"{path}#{anchor}" if anchor else path


def _commands() -> Iterator[str]:
    """Return the whole command line as Markdown."""
    group = driftline._group()
    context = click.Context(group, info_name="driftline")
    yield from _options(group, context)
    yield from _commands_of(group, context, 2)


def _commands_of(group: click.Group, context: click.Context, level: int) -> Iterator[str]:
    """Yield the commands of a group, each under a heading of this level."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        own = click.Context(command, parent=context, info_name=name)
        yield f"{'#' * level} {own.command_path}\n"
        usage = " ".join([own.command_path, *command.collect_usage_pieces(own)])
        yield f"```\n{usage}\n```\n"
        yield f"{_escaped(inspect.cleandoc(command.help or ''))}\n"
        yield from _options(command, own)
        if isinstance(command, click.Group):
            yield from _commands_of(command, own, level + 1)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the options of a command, except `--help`."""
    for parameter in command.get_params(context):
        names_and_text = parameter.get_help_record(context)
        if names_and_text is not None and names_and_text[1] and "--help" not in parameter.opts:
            yield f"`{names_and_text[0]}`\n:   {_escaped(names_and_text[1])}\n"


def _escaped(text: str) -> str:
    """Return a help text as Markdown: keep backticks, and escape all other markup."""
    pieces = text.split("`")
    pieces[::2] = [_MARKUP.sub(r"\\\1", escape(piece, quote=False)) for piece in pieces[::2]]
    return "`".join(pieces)
