"""Command options from environment variables and from a configuration file.

The file is `driftline.toml` in the working directory, or the one that ``--config`` or
DRIFTLINE_CONFIG names. A key is the flag of an option without the leading dashes:

    zookeeper = "zk1:2181,zk2:2181,zk3:2181/driftline"  # for all commands of a cluster

    [agent]                                             # for `driftline agent`
    slots = 8

The environment variables of these options are DRIFTLINE_ZOOKEEPER and DRIFTLINE_AGENT_SLOTS. The
command line has the highest precedence, then the environment, the file, and the option's default.
In terms of click, a variable is the option's `envvar`, and the file becomes the `default_map`. A
value in the file is parsed like the text after the flag.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import click
from click.core import ParameterSource
from msgspec import Struct

from driftline.engine.texts import did_you_mean
from driftline.engine.ui.options import refuse_empty

FILE = "driftline.toml"

SHARED = "zookeeper", "session", "bind", "advertise", "keys"
"""Valid keys outside tables: options that commands of a cluster share."""

PREFIX = "DRIFTLINE"
"""First part of the names of environment variables."""


class WrongSettings(click.ClickException):
    """An unusable configuration file."""

    exit_code = 2


class ConfigFile(Struct, frozen=True):
    """Parsed configuration file; `entries`: its keys and tables."""

    file: Path
    entries: Mapping[str, object]

    @staticmethod
    def read(file: Path, commands: Iterable[str]) -> ConfigFile:
        """Read a file that may have a table for each of these commands. Raises WrongSettings."""
        try:
            entries = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise WrongSettings(f"{file}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise WrongSettings(f"{file} is not valid TOML: {error}") from None
        for key, value in entries.items():
            known = tuple(commands) if isinstance(value, dict) else SHARED
            if key not in known:
                kind = "command" if isinstance(value, dict) else "key outside the tables"
                hint = did_you_mean(key, known)
                raise WrongSettings(f"{file}: there is no {kind} {key!r}{hint}")
        return ConfigFile(file, entries)

    def values_for(self, command: click.Command, name: str) -> dict[str, object]:
        """Return the values of this file for a command, as click's `default_map`.

        `name`: the name of the command's table. Raises WrongSettings if the table has an unknown
        key.
        """
        options, table = _options(command), self.entries.get(name, {})
        shared = {
            key: value
            for key, value in self.entries.items()
            if key in SHARED and key in options and options[key].envvar == env_variable(key)
        }
        return self._values(command, name, {**shared, **(table if isinstance(table, dict) else {})})

    def _values(
        self, command: click.Command, name: str, table: Mapping[str, object]
    ) -> dict[str, object]:
        values: dict[str, object] = {}
        options, subcommands = _options(command), _commands(command)
        for key, value in table.items():
            if key in subcommands and isinstance(value, dict):
                values[key] = self._values(subcommands[key], f"{name}.{key}", value)
            elif key in options:
                values[options[key].name or key] = _value(options[key], value)
            else:
                hint = did_you_mean(key, [*options, *subcommands])
                raise WrongSettings(f"{self.file}: [{name}] has no key {key!r}{hint}")
        return values


def config_option(commands: Iterable[str]) -> click.Option:
    """Return the option `--config`, which stores the parsed `ConfigFile` as `Context.obj`.

    `commands`: the commands that may have a table.
    """

    def read(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
        file = Path(FILE) if value is None else value
        if value is not None or file.exists():
            ctx.obj = ConfigFile.read(file, commands)

    return click.Option(
        ["--config"], type=click.Path(path_type=Path), metavar="FILE", expose_value=False,
        envvar=env_variable("config"), callback=read,
        help=f"Options of commands, as TOML.  [default: {FILE}, if it is there]",
    )  # fmt: skip


def apply_settings(context: click.Context, command: click.Command, name: str) -> None:
    """Let a command read options from the environment and the file. Raises WrongSettings.

    `name`: the command's name, which is also that of its table.
    """
    _name_variables(command, name)
    settings = context.find_object(ConfigFile)
    if settings is not None and not context.resilient_parsing:
        context.default_map = {name: settings.values_for(command, name)}


def env_variable(*names: str) -> str:
    """Return the variable of an option: ("agent", "slots") -> DRIFTLINE_AGENT_SLOTS."""
    return "_".join((PREFIX, *names)).upper().replace("-", "_").replace(".", "_")


def with_origin(error: click.ClickException) -> click.ClickException:
    """Return the error; if the value is from a file or variable, with a text that names this."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None:
        return error
    source = error.ctx.get_parameter_source(error.param.name or "")
    settings = error.ctx.find_object(ConfigFile)
    if source is ParameterSource.DEFAULT_MAP and settings is not None:
        origin = str(settings.file)
    elif source is ParameterSource.ENVIRONMENT:
        origin = str(error.param.envvar)
    else:
        return error
    text = f"{error.message.rstrip('.')} (from {origin})"
    return click.BadParameter(text, error.ctx, error.param, error.param_hint)


def _name_variables(command: click.Command, name: str) -> None:
    """Name the environment variables of a command after its flags, and let it reject empty values.

    Click's `auto_envvar_prefix` would name the variables after the function's arguments.
    """
    for key, option in _options(command).items():
        if option.envvar is None:
            option.envvar = env_variable(name, key)
    refuse_empty(command)
    for subname, subcommand in _commands(command).items():
        _name_variables(subcommand, f"{name}.{subname}")


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return key -> option of a command; the key is the flag without its leading dashes."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {option.opts[0].lstrip("-"): option for option in options}


def _commands(command: click.Command) -> Mapping[str, click.Command]:
    return command.commands if isinstance(command, click.Group) else {}


def _value(option: click.Option, value: object) -> object:
    """Return a value of the file in the form that click parses like the text after a flag.

    Values of options without a text (`is_flag`) stay as they are.
    """
    if option.multiple:
        return [str(each) for each in (value if isinstance(value, list) else [value])]
    return value if option.is_flag else str(value)
