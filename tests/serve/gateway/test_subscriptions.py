"""FairScheduler of those who have much to do in one loop."""

import asyncio

from driftline.serve.gateway.subscriptions import FairScheduler

PASSES = 20


def test_scheduler_limits_streams_to_one_piece_per_loop_pass() -> None:
    async def drive() -> tuple[int, set[int]]:
        turns = FairScheduler()
        done = [0] * 100

        async def stream(number: int) -> None:
            while True:
                await turns.wait_for_turn()
                done[number] += 1

        streams = [asyncio.create_task(stream(number)) for number in range(len(done))]
        await asyncio.sleep(0)
        for _ in range(PASSES):
            await asyncio.sleep(0)
        meanwhile = sum(done)
        streams.pop().cancel()  # one that waits for its turn leaves
        while min(done[:-1]) < 2:
            await asyncio.sleep(0)
        for each in streams:
            each.cancel()
        return meanwhile, set(done[:-1])

    meanwhile, done = asyncio.run(drive())
    assert 0 < meanwhile <= PASSES
    assert done <= {2, 3}, "they have their turns one after the other"
