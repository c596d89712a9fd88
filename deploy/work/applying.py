"""Applying: what waits at a port goes through its chain, as far as the turn has time for it.

What is left over is a rest; the node registers it as a block of its own, with an id of its own, in
the same batch that acknowledges the blocks it was a part of. So a frame, or a root, may be worked
off in as many turns as it needs, and no frontier passes what is not done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.blocks import Batch, Block, bounds, in_order
from driftline.deploy.work.gates import Token
from driftline.deploy.work.leaving import Leaving
from driftline.deploy.work.pace import Pace
from driftline.engine.flow.plan import Port


class Applying:
    """The way through the chains of one incarnation."""

    def __init__(self, assembly: Assembly, pace: Pace) -> None:
        self._assembly = assembly
        self._pace = pace
        self.leaving = Leaving(assembly)
        gates = zip(assembly.plan.ports, assembly.gates, strict=True)
        self._hold_back = [(port, gate) for port, gate in gates if gate.holds_back]
        self.due = False
        """Whether gates may hold something that may be applied."""

    def apply(
        self, port: Port, blocks: list[Block], complete: int, whole: bool
    ) -> tuple[list[Token], list[Batch]]:
        """Let blocks through a port; `whole`: however long it takes.

        Returns new tokens, and the batches for which there was no time.
        """
        number, pace = port.number, self._pace
        self._assembly.enter(number, blocks)
        gate = self._assembly.gates[number]
        batches = in_order(blocks)
        after = bounds(batches[1:]) if len(batches) > 1 else []
        tokens: list[Token] = []
        for at, batch in enumerate(batches):
            if at:
                if pace.over and not whole:
                    return tokens, batches[at:]
                # Finish the one before; what the last one makes has to leave first.
                self.leaving.pack(number)
                self._assembly.close(number, min(after[at - 1], complete))
            rest: Batch | None = batch
            while rest is not None:
                here, rest = pace.cut(number, rest)
                pace.begin_batch(number, here)
                tokens += gate.push(*here.elements())
                pace.end_batch(number, len(here.labels))
                if rest is not None and not whole:
                    return tokens, [rest, *batches[at + 1 :]]
        return tokens, []

    def release(self, frontiers: Sequence[int]) -> Iterator[tuple[int, list[Token]]]:
        """Let gates apply what is below their stages' frontiers: of each some, if there is much.

        Gives (port, tokens taken) while what was made is in `leaving`.
        """
        self.due = False
        for port, gate in self._hold_back:
            frontier = frontiers[port.stage]
            if not gate.due(frontier):
                continue
            held = len(self._assembly.gates) + port.number
            batch, tokens = gate.take(frontier, self._pace.room(held, frontier - 1))
            self._pace.begin_batch(held, batch)
            gate.entry.push(*batch.elements())
            self._pace.end_batch(held, len(batch.labels))
            yield port.number, tokens
            self.due |= gate.due(frontier)
