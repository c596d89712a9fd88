"""Elements in a random order of arrival: late, taken back, replaced by others."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st

from driftline.engine.labels import Label
from driftline.engine.operators.keyed import Keyed
from tests.engine.operators.operators import Element, Payload


@dataclass
class Story:
    """Batches of (label, payload, sign) in order of arrival, and the elements that remain."""

    batches: list[list[tuple[Label, Payload, int]]] = field(default_factory=list)
    frontiers: list[int] = field(default_factory=list)
    """After each batch: no later batch has an element with a smaller time."""
    exactly: list[bool] = field(default_factory=list)
    snapshots: list[bool] = field(default_factory=list)
    survivors: list[Element] = field(default_factory=list)
    """In label order."""


labels = st.tuples(
    st.integers(1, 15), st.integers(0, 1), st.lists(st.integers(0, 2), max_size=2)
).map(lambda parts: (parts[0], parts[1], *parts[2]))
payloads = st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "z", "uv", "raise"]))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Elements arrive late, some are taken back, some are replaced by others with their label."""
    chance = Random(draw(st.integers(0, 2**32)))
    story = Story()
    least = draw(st.sampled_from([0, 3, 8]))
    found = draw(
        st.lists(st.tuples(labels, payloads), min_size=least, max_size=20, unique_by=lambda e: e[0])
    )
    spread = draw(st.sampled_from([20.0, 3.0, 0.0]))
    events: list[tuple[float, tuple[Label, Payload, int]]] = []
    for label, payload in found:
        at = label[0] + chance.random() * spread
        events.append((at, (label, payload, 1)))
        fate = chance.choice(["stays", "stays", "stays", "goes", "is replaced"])
        if fate != "stays":
            events.append((at + 0.001 + chance.random() * spread, (label, payload, -1)))
        if fate == "is replaced":
            payload = draw(payloads)
            events.append((at + 0.002 + chance.random() * spread, (label, payload, 1)))
        if fate != "goes":
            story.survivors.append((label, payload))
    story.survivors.sort()
    events.sort(key=lambda found: found[0])
    arrivals = [element for _, element in events]
    while arrivals:
        size = chance.randint(1, 5)
        story.batches.append(arrivals[:size])
        arrivals = arrivals[size:]
        least = min((label[0] for label, _, _ in arrivals), default=20)
        story.frontiers.append(chance.choice([0, chance.randint(0, least), least]))
        story.exactly.append(chance.random() < 0.3)
        story.snapshots.append(chance.random() < 0.3)
    return story


def push(step: Keyed, batch: Sequence[tuple[Label, Payload, int]]) -> None:
    signs = [sign for _, _, sign in batch]
    step.push(
        [label for label, _, _ in batch],
        [payload for _, payload, _ in batch],
        None if all(sign > 0 for sign in signs) else signs,
    )
    step.validate()
