"""Random schedules of a journal and its followers: each gets all outputs once and in order."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given

from driftline.engine.wire.bundles import Item
from driftline.serve.hosting import feeds
from tests.serve.hosting.simulation import JournalSimulation, RestartableView, StreamFollower
from tests.serve.journal.runs import draw_run, rngs

STEPS = 150

SILENT_S = 2 * feeds.FOLLOWER_TIMEOUT_S


@given(rngs)
def test_followers_get_all_outputs_once_and_in_order(rng: Random) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeds, "WINDOW_BYTES", rng.choice((1, 200, 1 << 24)))
        patch.setattr(feeds, "TURN_BYTES", rng.choice((2000, 9000, 1 << 17)))
        patch.setattr(feeds, "TURN_STREAM_BYTES", rng.choice((2000, 9000, 1 << 16)))
        simulation = JournalSimulation(draw_run(rng, times=20), rng, Path(directory))
        hosts = [RestartableView(simulation, "a-0"), RestartableView(simulation, "a-1")]
        stream_followers = [StreamFollower(simulation), StreamFollower(simulation)]
        for _ in range(STEPS):
            _random_step(simulation, hosts, stream_followers)
        for _ in range(10_000):
            simulation.now += 0.1
            _step_all(simulation, hosts, stream_followers)
            if all(time == simulation.end_time for time, _ in _progress(hosts, stream_followers)):
                break
        for _, items in _progress(hosts, stream_followers):
            assert items == simulation.run.items
        for host in hosts:
            _run_until_answered(simulation, host)
            assert not host.required, "a request was not answered"
            assert set(host.answer_counts.values()) <= {1}, "a request was answered twice"
        _check_follower_without_backlog(simulation, StreamFollower(simulation, simulation.end_time))
        simulation.server.journal.close()


def _check_follower_without_backlog(
    simulation: JournalSimulation, follower: StreamFollower
) -> None:
    """Check that a follower at the end of the journal receives one message."""
    follower.step(0)
    while simulation.channels[follower.route].up:
        simulation.deliver_up()
    while simulation.turn():
        pass
    follower.step(1)
    assert follower.message_count == 1


def _random_step(
    simulation: JournalSimulation,
    hosts: list[RestartableView],
    stream_followers: list[StreamFollower],
) -> None:
    rng = simulation.rng
    host = rng.choice(hosts)
    match rng.randrange(24):
        case 0:
            simulation.crash()
        case 1:
            host.kill()
        case 2:
            simulation.now += SILENT_S  # long enough for the feeds to drop silent followers
        case 3:
            host.cancel_one()
        case 4:
            host.finish_job(succeeds=False)
        case 5 | 6:
            host.finish_job(succeeds=True)
        case 7 | 8 | 9:
            host.ask()
        case 10 | 11 | 12 | 13:
            simulation.deliver_bundle()
        case 14 | 15 | 16:
            simulation.turn()
        case 17 | 18:
            simulation.deliver_up()
        case 19 | 20:
            rng.choice(stream_followers).step(rng.randint(0, 5))
        case _:
            simulation.now += rng.choice((0.0, 0.01, 0.3))
            host.step(rng.randint(0, 5))


def _step_all(
    simulation: JournalSimulation,
    hosts: list[RestartableView],
    stream_followers: list[StreamFollower],
) -> None:
    simulation.deliver_bundle()
    simulation.turn()
    simulation.deliver_up()
    for follower in stream_followers:
        follower.step(5)
    for host in hosts:
        host.step(5)
        host.finish_job(succeeds=True)


def _progress(
    hosts: list[RestartableView], stream_followers: list[StreamFollower]
) -> list[tuple[int, list[Item]]]:
    """Return the time and the outputs of each follower."""
    views = [host.view for host in hosts]
    return [(each.time, each.items) for each in stream_followers] + [
        (each.time, each.items) for each in views
    ]


def _run_until_answered(simulation: JournalSimulation, host: RestartableView) -> None:
    """Run enough turns to answer all pending requests."""
    for _ in range(100):
        host.step(5)
        simulation.turn()
