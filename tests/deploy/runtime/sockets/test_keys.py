"""Sets of keys: rights, file permissions, and files that are never overwritten."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from driftline.deploy.commands.keys import keys as command
from driftline.deploy.runtime.sockets.keys import (
    HOST_ROLE_PATTERNS,
    Authorised,
    KeyPair,
    Rights,
    add_keys,
    own_key,
    read_key,
)
from driftline.engine.errors import DriftlineError, NotPermitted, Unavailable


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Make a set of two hosts, a producer and a consumer."""
    add_keys(tmp_path / "keys", ["a", "b"], {"shop": ["orders"]}, {"board": ["totals"]})
    return tmp_path / "keys"


def test_key_round_trips_and_its_public_half_is_authorised(made: Path) -> None:
    authorised = Authorised(made)
    for name, rights in {
        "a": Rights(HOST_ROLE_PATTERNS),
        "shop": Rights(("shop", "shop-*"), sources=("orders",)),
        "board": Rights(("consumer",), sinks=("totals",)),
    }.items():
        key = read_key(made / f"{name}.key")
        assert (key.name, key.rights) == (name, rights)
        assert authorised.find_key(key.public) == (name, rights)
        assert key.secret not in (made / "authorised").read_text()
        assert key.secret not in repr(key)


def test_only_the_owner_can_read_keys_for_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        add_keys(tmp_path / "keys", ["a"])
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("keys", "keys/a.key")}
    assert modes == {"keys": 0o700, "keys/a.key": 0o600}


@pytest.mark.parametrize(("mode", "name"), [(0o640, "a.key"), (0o604, "a.key"), (0o750, ".")])
def test_key_readable_by_others_is_rejected_with_a_chmod_command(
    made: Path, mode: int, name: str
) -> None:
    path = made / name
    path.chmod(mode)
    with pytest.raises(NotPermitted, match=f"chmod {'700' if name == '.' else '600'} {path}"):
        own_key(made / "a.key")
    path.chmod(0o700 if name == "." else 0o600)
    assert own_key(made / "a.key").name == "a"


def _halves_of_two(path: Path) -> str:
    one, other = (read_key(path.parent / name) for name in ("a.key", "b.key"))
    return path.read_text().replace(one.public, other.public)


DAMAGED: list[Callable[[Path], str]] = [
    lambda path: "",
    lambda path: path.read_text()[:-40],
    lambda path: path.read_text().replace('"node-*"', '"*-node"'),
    lambda path: path.read_text().replace("[", "[1, "),
    lambda path: path.read_text().replace("{}", '{"a": "1"}'),
    _halves_of_two,
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_key_is_refused_with_its_name(made: Path, damage: Callable[[Path], str]) -> None:
    path = made / "a.key"
    path.write_text(damage(path))
    with pytest.raises(NotPermitted, match=str(path)):
        read_key(path)


def test_adding_a_client_keeps_existing_keys(made: Path) -> None:
    before = {path.name: path.read_bytes() for path in made.glob("*.key")}
    for taken in (["a"], ["shop"]):
        with pytest.raises(NotPermitted, match=f"has a key {taken[0]} already"):
            add_keys(made, taken)
    add_keys(made, producers={"till": ["payments", "orders"]})
    assert {path.name: path.read_bytes() for path in made.glob("*.key")} == before | {
        "till.key": (made / "till.key").read_bytes()
    }
    names = {name for name, _, _ in Authorised(made)}
    assert names == {"a", "b", "shop", "board", "till"}


def test_authorised_file_is_reloaded_when_clients_change(made: Path) -> None:
    authorised = Authorised(made)
    before = (made / "authorised").read_bytes()
    add_keys(made, producers={"till": ["orders"]})
    till = read_key(made / "till.key")
    assert authorised.find_key(till.public) == ("till", till.rights)
    (made / "authorised").write_text('{"a": {"public": 1}}')  # a typing error of the administrator
    assert authorised.find_key(till.public) == ("till", till.rights)
    (made / "authorised").write_bytes(before)
    assert authorised.find_key(till.public) is None


def test_a_set_needs_a_host(tmp_path: Path) -> None:
    with pytest.raises(NotPermitted, match="give --hosts"):
        add_keys(tmp_path / "keys", producers={"shop": ["orders"]})


def test_name_outside_the_directory_is_rejected(tmp_path: Path) -> None:
    for name in ("../a", "", ".a", "a/b", "a\n", "ä"):
        with pytest.raises(NotPermitted, match="cannot be the name of a key"):
            add_keys(tmp_path / "keys", [name])
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == [".lock"]


def test_process_uses_the_key_of_its_kind(made: Path) -> None:
    assert own_key(made, producer=True).name == "shop"
    with pytest.raises(NotPermitted, match="has several keys of a host"):
        own_key(made)
    (made / "b.key").unlink()
    assert own_key(made).name == "a"
    (made / "a.key").unlink()
    with pytest.raises(NotPermitted, match="has no key of a host"):
        own_key(made)
    with pytest.raises(Unavailable, match=r"cannot read the key .*gone\.key"):
        own_key(made / "gone.key")


def test_a_producer_finds_the_key_of_its_host(made: Path) -> None:
    shop, public = read_key(made / "shop.key"), read_key(made / "b.key").public
    assert shop.server_at("tcp://b:5555").public_key == public
    assert shop.server_at(f"tcp://10.0.0.5:5555#{public}").public_key == public
    with pytest.raises(NotPermitted, match=r"which host is tcp://10\.0\.0\.5:5555"):
        shop.server_at("tcp://10.0.0.5:5555")
    alone = KeyPair.new("shop", shop.rights, {"b": public})
    assert alone.server_at("tcp://10.0.0.5:5555").public_key == public


@pytest.mark.parametrize("pattern", ["", "a*b", "*a", "a\n", "a" * 201])
def test_pattern_is_a_name_or_a_prefix(pattern: str) -> None:
    with pytest.raises(NotPermitted):
        Rights((pattern,))


def test_rights_cover_only_the_listed_names_and_sinks() -> None:
    host = Rights(HOST_ROLE_PATTERNS)
    spoken = {name: host.may_send_as(name) for name in ("master", "node-12", "master2", "consumer")}
    assert spoken == {"master": True, "node-12": True, "master2": False, "consumer": False}
    assert Rights(sinks=("a", "b")).may_take(["a", "b"])
    assert not Rights(sinks=("a",)).may_take(["a", "b"])
    assert not Rights(names=("shop",)).may_send_to("shop")


def test_command_makes_a_set_and_adds_to_it(tmp_path: Path) -> None:
    file, keys = tmp_path / "made.json", tmp_path / "keys"

    def run(*arguments: str) -> tuple[int, str]:
        command_line = [str(keys), *arguments, "--json", str(file)]
        done = CliRunner().invoke(command, command_line)
        if isinstance(done.exception, DriftlineError):
            return 1, str(done.exception)
        return done.exit_code, done.output

    assert run("--hosts", "a,b")[0] == 0
    assert run("--producer", "shop=orders,payments", "--consumer", "board=totals")[0] == 0
    written = json.loads(file.read_text())
    assert written["made"]["shop"]["sources"] == ["orders", "payments"]
    assert written["made"]["board"]["public"] == read_key(keys / "board.key").public
    status, text = run("--producer", "shop=orders")
    assert (status, "has a key shop already" in text) == (1, True)
    assert "has a key shop already" in json.loads(file.read_text())["error"]
    for wrong in ([], ["--producer", "shop"], ["--hosts", "a,,b"], ["--hosts", "c,", "--json", ""]):
        assert run(*wrong)[0] == 2
    assert run("--hosts", "x", "--producer", "x=orders")[0] == 2
