"""Random schedules of a journal and its followers: each has all outputs, once and in order."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given

from driftline.engine.wire.bundles import Item
from driftline.serve.hosting import feeds
from tests.serve.hosting.world import Hosted, Plain, World
from tests.serve.journal.runs import chances, run_of

STEPS = 150

SILENT_S = 2 * feeds.FOLLOWER_TIMEOUT_S


@given(chances)
def test_each_follower_has_what_the_journal_has(chance: Random) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeds, "WINDOW_BYTES", chance.choice((1, 200, 1 << 24)))
        patch.setattr(feeds, "TURN_BYTES", chance.choice((2000, 9000, 1 << 17)))
        patch.setattr(feeds, "TURN_STREAM_BYTES", chance.choice((2000, 9000, 1 << 16)))
        world = World(run_of(chance, times=20), chance, Path(directory))
        hosts = [Hosted(world, "a-0"), Hosted(world, "a-1")]
        plain = [Plain(world), Plain(world)]
        for _ in range(STEPS):
            _happen(world, hosts, plain)
        for _ in range(10_000):
            world.now += 0.1
            _go_on(world, hosts, plain)
            if all(time == world.end for time, _ in _had(hosts, plain)):
                break
        for _, items in _had(hosts, plain):
            assert items == world.run.items
        for host in hosts:
            _settle(world, host)
            assert not host.must, "a question was not answered"
            assert set(host.answers.values()) <= {1}, "a question was answered twice"
        _hears(world, Plain(world, world.end))
        world.server.journal.close()


def _hears(world: World, follower: Plain) -> None:
    """One that begins with all that there is hears that there is no more."""
    follower.step(0)
    while world.channels[follower.route].up:
        world.deliver_up()
    while world.turn():
        pass
    follower.step(1)
    assert follower.heard == 1


def _happen(world: World, hosts: list[Hosted], plain: list[Plain]) -> None:
    chance = world.chance
    host = chance.choice(hosts)
    match chance.randrange(24):
        case 0:
            world.crash()
        case 1:
            host.kill()
        case 2:
            world.now += SILENT_S  # whoever is not heard meanwhile is given nothing more
        case 3:
            host.take_back()
        case 4:
            host.worked(well=False)
        case 5 | 6:
            host.worked(well=True)
        case 7 | 8 | 9:
            host.ask()
        case 10 | 11 | 12 | 13:
            world.bundle()
        case 14 | 15 | 16:
            world.turn()
        case 17 | 18:
            world.deliver_up()
        case 19 | 20:
            chance.choice(plain).step(chance.randint(0, 5))
        case _:
            world.now += chance.choice((0.0, 0.01, 0.3))
            host.step(chance.randint(0, 5))


def _go_on(world: World, hosts: list[Hosted], plain: list[Plain]) -> None:
    world.bundle()
    world.turn()
    world.deliver_up()
    for follower in plain:
        follower.step(5)
    for host in hosts:
        host.step(5)
        host.worked(well=True)


def _had(hosts: list[Hosted], plain: list[Plain]) -> list[tuple[int, list[Item]]]:
    """What each follower has, up to which time."""
    views = [host.view for host in hosts]
    return [(each.time, each.items) for each in plain] + [(each.time, each.items) for each in views]


def _settle(world: World, host: Hosted) -> None:
    """What can be answered is answered after a few turns."""
    for _ in range(100):
        host.step(5)
        world.turn()
