"""Options from a configuration file and from the environment: precedence and errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

import driftline
from driftline.deploy.cluster.agent import AgentConfig
from driftline.deploy.commands.cluster_options import ClusterAddress

FLOW = "driftline.simulation.scenarios.flows:concatenation"


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command as the program does and return its exit status."""
    monkeypatch.setattr("sys.argv", ["driftline", *arguments])
    status = driftline._status()
    return status if isinstance(status, int) else 0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[AgentConfig, str]]:
    """Collect the agents that commands would have run, each with its cluster."""
    found: list[tuple[AgentConfig, str]] = []

    @contextmanager
    def opened(place: ClusterAddress, *, new: bool) -> Iterator[str]:
        yield place.zookeeper

    def run_agent(config: AgentConfig, where: str) -> None:
        found.append((config, where))

    monkeypatch.setattr(ClusterAddress, "open_tree", opened)
    monkeypatch.setattr("driftline.deploy.commands.agent.run_agent", run_agent)
    return found


def test_command_line_overrides_environment_and_environment_overrides_file(
    started: list[tuple[AgentConfig, str]], working_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (working_directory / "driftline.toml").write_text(
        'zookeeper = "of-file"\nsession = 3\nbind = "10.0.0.1"\n'
        '[agent]\nslots = 5\nname = "of-file"\nstate = "state"\n'
        '[submit]\nnodes = 6\n[run]\ninput = ["a", "b"]\n'
    )
    assert run_command(monkeypatch, "agent") == 0
    monkeypatch.setenv("DRIFTLINE_ZOOKEEPER", "of-variable")
    monkeypatch.setenv("DRIFTLINE_AGENT_SLOTS", "7")
    monkeypatch.setenv("DRIFTLINE_RUN_SLOTS", "8")
    assert run_command(monkeypatch, "agent") == 0
    assert run_command(monkeypatch, "agent", "--slots", "9", "--zookeeper", "of-flag") == 0
    shown = [(c.slots, c.name, c.session_s, c.network.bind, where) for c, where in started]
    assert shown == [
        (slots, "of-file", 3.0, "10.0.0.1", place)
        for slots, place in ((5, "of-file"), (7, "of-variable"), (9, "of-flag"))
    ]


def test_config_option_selects_another_file(
    started: list[tuple[AgentConfig, str]], working_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (working_directory / "driftline.toml").write_text("no TOML")
    for number in (1, 2):
        (working_directory / f"{number}.toml").write_text(
            f'zookeeper="r"\n[agent]\nstate="s"\nslots={number}\n'
        )
    monkeypatch.setenv("DRIFTLINE_CONFIG", "1.toml")
    assert run_command(monkeypatch, "agent") == 0
    assert run_command(monkeypatch, "--config", "2.toml", "agent") == 0
    assert [config.slots for config, _ in started] == [1, 2]


OPTIONS = {"agent": ["--state", "s"]}
"""Required options, so that only the settings under test are wrong."""

WRONG = [
    ("no TOML", "agent", "driftline.toml is not valid TOML"),
    ("slots = " + "[" * 200_000, "agent", "driftline.toml is not valid TOML"),
    ("[agents]\nslots = 2", "agent", "there is no command 'agents' (did you mean 'agent'?)"),
    ("slots = 2", "agent", "there is no key outside the tables 'slots'"),
    ("zookeper = 'a:1'", "agent", "did you mean 'zookeeper'?"),
    ("[agent]\nslot = 2", "agent", "[agent] has no key 'slot' (did you mean 'slots'?"),
    ("[run]\nsnapshot_interval_ms = 2", "run", "no key 'snapshot_interval_ms' (did you mean"),
    ("[agent]\nslots = true", "agent", "'True' is not a valid integer range (from driftline.toml)"),
    ("[agent]\nslots = [2]", "agent", "'[2]' is not a valid integer range (from driftline.toml)"),
    ("[agent]\nlog-json = 'x'", "agent", "'x' is not a valid boolean"),
    ("session = 'long'", "agent", "'long' is not a valid float range (from driftline.toml)"),
    ("[spark.audits]\nconf = 1", "spark", "[spark] has no key 'audits' (did you mean 'audit'?)"),
    ("[spark.audit]\nconfs = 1", "spark", "[spark.audit] has no key 'confs' (did you mean 'conf'?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "command", "message"), WRONG)
def test_config_file_error_names_file_and_key(
    text: str,
    command: str,
    message: str,
    working_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (working_directory / "driftline.toml").write_text(text)
    assert run_command(monkeypatch, command, *OPTIONS.get(command, ())) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_environment_error_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRIFTLINE_AGENT_SLOTS", "many")
    assert run_command(monkeypatch, "agent", "--state", "s") == 2
    assert "'many' is not a valid integer range (from DRIFTLINE_AGENT_SLOTS)" in (
        capsys.readouterr().err
    )
    assert run_command(monkeypatch, "--config", "none.toml", "agent") == 2
    assert "none.toml: No such file" in capsys.readouterr().err


def test_default_settings_do_not_conflict_with_command_line(
    working_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--reference` rejects --nodes only on the command line, not in a file or the environment."""
    (working_directory / "in.jsonl").write_text('{"id": 1, "key": "a", "text": "b"}\n')
    (working_directory / "driftline.toml").write_text(
        '[run]\nnodes = 2\ninput = "in.jsonl"\noutput = "out"\n'
    )
    monkeypatch.setenv("DRIFTLINE_RUN_WINDOW", "10")
    assert run_command(monkeypatch, "run", FLOW, "--reference") == 0, capsys.readouterr().err
    assert list((working_directory / "out").iterdir())
    assert run_command(monkeypatch, "run", FLOW, "--reference", "--nodes", "2") == 2
    assert "--nodes cannot be given" in capsys.readouterr().err


def test_each_option_has_its_own_variable() -> None:
    """Options of one command share no variable, and only shared options have two names."""
    group = driftline._group()
    context = click.Context(group)
    found: dict[str, str] = {}

    def look(command: click.Command, name: str) -> None:
        if isinstance(command, click.Group):
            for inner, other in command.commands.items():
                look(other, f"{name} {inner}")
        for param in command.params:
            if isinstance(param, click.Option):
                assert isinstance(param.envvar, str)
                flag = param.opts[0]
                shared = f"DRIFTLINE_{flag.lstrip('-')}".upper()
                key = flag if param.envvar == shared else f"{name} {flag}"
                assert found.setdefault(param.envvar, key) == key

    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        look(command, name)
    assert found["DRIFTLINE_ZOOKEEPER"] == "--zookeeper"
    assert found["DRIFTLINE_SPARK_AUDIT_OUTPUT"] == "spark audit --output"
