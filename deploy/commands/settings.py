"""Settings: options of commands from the environment and from a configuration file.

The file is `driftline.toml` in the working directory, or the one that ``--config`` or
DRIFTLINE_CONFIG names. A key is the flag of an option without its dashes:

    zookeeper = "zk1:2181,zk2:2181,zk3:2181/driftline"  # for all commands of a cluster

    [agent]                                             # for `driftline agent`
    slots = 8

The same as variables: DRIFTLINE_ZOOKEEPER, DRIFTLINE_AGENT_SLOTS. The command line counts first,
then the environment, then the file, then the default of the option. A value in the file is read as
the text after the flag would be, so it means the same.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import click
from click.core import ParameterSource

from driftline.engine.ui.near import did_you_mean
from driftline.engine.visible import complain

FILE = "driftline.toml"

SHARED = "zookeeper", "session", "bind", "advertise", "keys"
"""The keys outside tables: options that all commands of a cluster have."""

PREFIX = "DRIFTLINE"

Value = str | bool | list[str]
"""What `click` takes for an option."""


class WrongSettings(click.ClickException):
    """A configuration file that cannot be used."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration file."""

    file: Path
    found: Mapping[str, object]

    @staticmethod
    def read(file: Path, commands: Iterable[str]) -> Settings:
        """Read a file that may have a table for each of these commands. Raises WrongSettings."""
        try:
            found = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise WrongSettings(f"{file}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise WrongSettings(f"{file} is no TOML: {error}") from None
        tables = set(commands)
        for key, value in found.items():
            if isinstance(value, dict) and key not in tables:
                raise WrongSettings(
                    f"{file}: there is no command {key!r}{did_you_mean(key, tables)}"
                )
            if not isinstance(value, dict) and key not in SHARED:
                raise WrongSettings(
                    f"{file}: no key {key!r} outside the table of a command"
                    f"{did_you_mean(key, SHARED)}; there are {', '.join(SHARED)}"
                )
        return Settings(file, found)

    def values_for(self, command: click.Command, name: str) -> dict[str, object]:
        """What the file has for a command, as `click` takes it. Raises WrongSettings."""
        table = self.found.get(name)
        options = _options(command)
        shared = {
            key: value
            for key, value in self.found.items()
            if not isinstance(value, dict)
            and key in options
            and options[key].envvar == variable(key)
        }
        return self._values(command, name, shared | (table if isinstance(table, dict) else {}))

    def _values(
        self, command: click.Command, name: str, table: Mapping[str, object]
    ) -> dict[str, object]:
        values: dict[str, object] = {}
        options, inner = _options(command), _commands(command)
        for key, value in table.items():
            if key in inner and isinstance(value, dict):
                values[key] = self._values(inner[key], f"{name}.{key}", value)
            elif key in options and (option := options[key]).name is not None:
                values[option.name] = self._value(option, value, f"{self.file}: {key} of [{name}]")
            else:
                near = did_you_mean(key, [*options, *inner])
                raise WrongSettings(
                    f"{self.file}: [{name}] has no key {key!r}{near}: see `driftline "
                    f"{name.replace('.', ' ')} --help`"
                )
        return values

    def _value(self, option: click.Option, value: object, where: str) -> Value:
        """A value as the text after the flag would be. Raises WrongSettings."""
        if option.is_flag:
            if isinstance(value, bool):
                return value
            raise WrongSettings(f"{where} is true or false, not {value!r}")
        if option.multiple and isinstance(value, list):
            return [_text(each, where) for each in value]
        text = _text(value, where)
        return [text] if option.multiple else text


def config_option(commands: Iterable[str]) -> click.Option:
    """The option that names the file; what is read becomes the object of the context."""

    def read(ctx: click.Context, param: click.Parameter, given: Path | None) -> None:
        file = Path(FILE) if given is None else given
        if given is not None or file.exists():
            ctx.obj = Settings.read(file, commands)

    return click.Option(
        ["--config"], type=click.Path(path_type=Path), metavar="FILE", expose_value=False,
        envvar=variable("config"), callback=read,
        help=f"Options of commands, as TOML.  [default: {FILE}, if it is there]",
    )  # fmt: skip


def set_up(context: click.Context, command: click.Command, name: str) -> None:
    """Let a command take options from the environment and the file. Raises WrongSettings."""
    _name_variables(command, name)
    if not context.resilient_parsing:
        group = context.command
        commands = group.list_commands(context) if isinstance(group, click.Group) else []
        for text in strange_variables(command, name, commands, os.environ):
            complain(text)
    settings = context.find_object(Settings)
    if settings is not None and not context.resilient_parsing:
        context.default_map = {name: settings.values_for(command, name)}


def variable(*names: str) -> str:
    """The variable of an option: ("agent", "slots") -> DRIFTLINE_AGENT_SLOTS."""
    return "_".join((PREFIX, *names)).upper().replace("-", "_").replace(".", "_")


def strange_variables(
    command: click.Command, name: str, commands: Iterable[str], environment: Iterable[str]
) -> Iterator[str]:
    """Words about each variable that looks like one of this command, or of all, and is none;
    `commands`: the names of all. What is another's is not looked at."""
    known = {variable("config"), *map(variable, SHARED), *_variables(command)}
    of_others = tuple(f"{variable(other)}_" for other in commands if other != name)
    for each in sorted(set(environment) - known):
        if each.startswith(f"{PREFIX}_") and not each.startswith(of_others):
            near = get_close_matches(each, known, 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            yield f"note: {each} is the variable of no option of `driftline {name}`{meant}"


def origin(context: click.Context, name: str) -> str:
    """Where the value of an option is from, unless it was given to the command or to nobody."""
    source = context.get_parameter_source(name)
    settings = context.find_object(Settings)
    if source is ParameterSource.DEFAULT_MAP and settings is not None:
        return f"from {settings.file}"
    if source is ParameterSource.ENVIRONMENT:
        names = [param.envvar for param in context.command.params if param.name == name]
        return f"from {names[0]}"
    return ""


def with_origin(error: click.ClickException) -> click.ClickException:
    """An error; one about the value of an option says where that is from."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None:
        return error
    found = origin(error.ctx, error.param.name or "")
    if not found:
        return error
    text = f"{error.message.rstrip('.')} ({found})"
    return click.BadParameter(text, error.ctx, error.param, error.param_hint)


def _name_variables(command: click.Command, name: str) -> None:
    for key, option in _options(command).items():
        if option.envvar is None:
            option.envvar = variable(name, key)
    for inner, other in _commands(command).items():
        _name_variables(other, f"{name}.{inner}")


def _options(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by their keys."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {option.opts[0].lstrip("-"): option for option in options}


def _variables(command: click.Command) -> Iterator[str]:
    """The variables of a command and of those within it. Precondition: they are named."""
    for option in _options(command).values():
        if isinstance(option.envvar, str):
            yield option.envvar
    for inner in _commands(command).values():
        yield from _variables(inner)


def _commands(command: click.Command) -> Mapping[str, click.Command]:
    return command.commands if isinstance(command, click.Group) else {}


def _text(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise WrongSettings(f"{where} is a text or a number, not {value!r}")
