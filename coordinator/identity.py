"""Identity of a run: what has to be the same for a later command to continue with its state.

The registry stores the complete identity, so that an error can name the differences. Stores and
output directories contain only its text. Two identities with equal texts count as equal.
"""

from __future__ import annotations

import json

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from driftline.engine.flow.outline import Outline


class Identity(Struct, frozen=True, array_like=True):
    """A flow, a policy, a number of nodes, and inputs (a text for each of `flow.sources`)."""

    flow: Outline
    digest: str
    """Digest of the flow: `Plan.identity`."""
    policy: str
    nodes: int
    """The initial number of nodes. A rescaling changes only the layout in the registry."""
    inputs: tuple[str, ...]
    start: str = ""
    """The savepoint that the run began from; empty without one."""

    @property
    def text(self) -> str:
        """The identity as one text."""
        start = f"|from {self.start}" if self.start else ""
        return f"{self.digest}|{self.policy}|{self.nodes}|{'|'.join(self.inputs)}{start}"

    def with_initial_nodes(self, before: Identity | None) -> Identity:
        """Return this identity with the initial number of nodes of `before`; unchanged if None."""
        return self if before is None else replace(self, nodes=before.nodes)

    def differences(self, before: Identity) -> list[str]:
        """Return the differences from the identity `before`: a clause each, for an error text."""
        texts = self.flow.differences(before.flow)
        if not texts and self.digest != before.digest:
            texts.append("the flow is different")
        if self.policy != before.policy:
            texts.append(f"the policy is {self.policy} instead of {before.policy}")
        if self.nodes != before.nodes:
            texts.append(f"the number of nodes is {self.nodes} instead of {before.nodes}")
        inputs = dict(zip(before.flow.sources, before.inputs, strict=False))
        for name, current in zip(self.flow.sources, self.inputs, strict=False):
            if (earlier := inputs.get(name, current)) != current:
                texts.append(f"the input of source {name!r} is {current} instead of {earlier}")
        if self.start != before.start:
            start, earlier = self.start or "the beginning", before.start or "the beginning"
            texts.append(f"the run begins from {start} instead of {earlier}")
        return texts

    def to_json(self) -> str:
        """Encode the identity as one line of JSON."""
        return json.dumps(msgspec.to_builtins(self))

    @staticmethod
    def from_json(line: str) -> Identity | None:
        """Decode the result of `to_json`. Return None for anything else."""
        try:
            return msgspec.convert(json.loads(line), Identity)
        except (ValueError, RecursionError):  # msgspec.ValidationError is a ValueError
            return None
