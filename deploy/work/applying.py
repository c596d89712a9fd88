"""Applying: pushes the elements of blocks into their chain, until the time of the turn is over.

The elements for which there is no time are the *rest*. The node registers the rest as a block with
an id of its own, in the acknowledgement of the blocks that it comes from. So a frame, or a root,
may take any number of turns, and no frontier passes elements that are not applied.

Takes: blocks of a port; frontiers, for gates that hold elements back. Gives: outputs, in `leaving`;
the rest; tokens. Invariant: of the blocks that `apply` gets together, no element is applied after
one with a later time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.blocks import Batch, Block, bounds, in_label_order
from driftline.deploy.work.gates import Token
from driftline.deploy.work.leaving import Leaving
from driftline.deploy.work.pace import Pace
from driftline.engine.flow.plan import Port


class Applying:
    """Applies elements to the chains of one incarnation."""

    def __init__(self, assembly: Assembly, pace: Pace) -> None:
        self._assembly = assembly
        self._pace = pace
        self.leaving = Leaving(assembly)
        """The outputs of chains that have not been sent."""
        gates = zip(assembly.plan.ports, assembly.gates, strict=True)
        self._hold_back = [(port, gate) for port, gate in gates if gate.holds_back]
        self.due = False
        """Whether gates may hold elements below the frontiers of their stages."""

    def apply(
        self, port: Port, blocks: list[Block], complete: int, to_the_end: bool
    ) -> tuple[list[Token], list[Batch]]:
        """Push the elements of blocks into a port's gate, in label order.

        `complete`: the frontier of the stage before; `to_the_end`: apply all, even if the time of
        the turn is over. Returns new tokens, and the rest. Raises MalformedMessage if payloads
        cannot be decoded.
        """
        number, pace = port.number, self._pace
        self._assembly.enter(number, blocks)
        gate = self._assembly.gates[number]
        batches = in_label_order(blocks)
        next_times = bounds(batches[1:]) if len(batches) > 1 else []
        tokens: list[Token] = []
        for at, batch in enumerate(batches):
            if at:
                if pace.over and not to_the_end:
                    return tokens, batches[at:]
                # Not after the last batch: its outputs have to leave before anything is closed.
                self.leaving.pack(number)
                self._assembly.close(number, min(next_times[at - 1], complete))
            rest: Batch | None = batch
            while rest is not None:
                first, rest = pace.cut(number, rest)
                pace.begin_batch(number, first)
                tokens += gate.push(*first.elements())
                pace.end_batch(number, len(first.labels))
                if rest is not None and not to_the_end:
                    return tokens, [rest, *batches[at + 1 :]]
        return tokens, []

    def release(self, frontiers: Sequence[int]) -> Iterator[tuple[int, list[Token]]]:
        """Apply the elements that gates hold back, below the frontiers of their stages.

        Of each gate, as many elements as fit into the turn. Yields (port, tokens of the times that
        are done) for each gate, as soon as the outputs are in `leaving`.
        """
        self.due = False
        for port, gate in self._hold_back:
            frontier = frontiers[port.stage]
            if not gate.due(frontier):
                continue
            behind_gate = len(self._assembly.gates) + port.number  # its number for the pace
            batch, tokens = gate.take(frontier, self._pace.room(behind_gate, frontier - 1))
            self._pace.begin_batch(behind_gate, batch)
            gate.entry.push(*batch.elements())
            self._pace.end_batch(behind_gate, len(batch.labels))
            yield port.number, tokens
            self.due |= gate.due(frontier)
