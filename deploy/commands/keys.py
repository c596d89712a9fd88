"""Command `driftline keys`: make CURVE keys for hosts, producers and consumers."""

from __future__ import annotations

from pathlib import Path

import click

from driftline.deploy.runtime.sockets.keys import AUTHORISED, SUFFIX, add_keys
from driftline.engine.texts import counted
from driftline.engine.ui.options import json_option
from driftline.engine.ui.results import write_json


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    """Parse names that are separated by commas; None: no names. Raises BadParameter."""
    names = [name.strip() for name in (value or "").split(",")] if value is not None else []
    if not all(names):
        raise click.BadParameter(f"{value!r} is not a list of names, like a,b,c")
    return list(dict.fromkeys(names))


def _clients(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, list[str]]:
    """Parse values NAME=A,B. Return name -> sources or sinks. Raises BadParameter."""
    names_by_client: dict[str, list[str]] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not name or not equals or name in names_by_client:
            raise click.BadParameter(f"{value!r} is not NAME=A,B, or NAME is given twice")
        names_by_client[name] = _names(ctx, param, rest)
    return names_by_client


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--hosts", metavar="A,B", callback=_names,
              help="Names of hosts. Each gets one key, for its masters, nodes and fronts.",
              )  # fmt: skip
@click.option("--producer", "producers", multiple=True, metavar="NAME=SOURCE,SOURCE",
              callback=_clients, help="A producer, and the sources that it may send to. Its id is "
              "NAME, or begins with NAME and a hyphen. Any number of times.")  # fmt: skip
@click.option("--consumer", "consumers", multiple=True, metavar="NAME=SINK,SINK",
              callback=_clients,
              help="A consumer, and the sinks that it may read. Any number of times.",
              )  # fmt: skip
@json_option
def keys(
    directory: Path,
    hosts: list[str],
    producers: dict[str, list[str]],
    consumers: dict[str, list[str]],
    json_file: Path | None,
) -> None:
    """Make keys in DIR: a new set, or more keys of an existing set.

    Each key has a secret file NAME.key. The file `authorised` lists the public keys and their
    rights. A host needs `authorised` and its own key file; a producer or consumer needs only its
    own key file. No key is ever overwritten.
    """
    names = [*hosts, *producers, *consumers]
    if not names:
        raise click.UsageError("give --hosts, --producer or --consumer")
    if len(set(names)) < len(names):
        raise click.UsageError("two keys cannot have the same name")
    made = add_keys(directory, hosts, producers, consumers)
    created = {
        key.name: {
            "file": str(directory / f"{key.name}{SUFFIX}"),
            "public": key.public,
            "names": key.rights.names,
            "sources": key.rights.sources,
            "sinks": key.rights.sinks,
        }
        for key in made
    }
    write_json(json_file, {"directory": str(directory), "made": created, "error": None})
    for name in created:
        click.echo(f"{directory / f'{name}{SUFFIX}'}: secret key of {name}")
    click.echo(
        f"{directory / AUTHORISED}: {counted(len(made), 'key')} added; copy it to every host"
    )
