"""Connected components: the group of each node of a graph, as links arrive.

A group has the name of its smallest node. A new link joins two groups: each node of the group with
the larger name receives the smaller name from a neighbour, and sends it to its own neighbours.

    {"from": "a", "to": "b"}

    driftline run examples/connected_components.py --input links.jsonl --output out
"""

from __future__ import annotations

from collections.abc import Iterator

from driftline import Again, Context, Flow, MapState, ValueState

Message = tuple[str, str, str | None]
"""(node, a neighbour, the group of the neighbour; None: the neighbour is new)"""


def join(
    context: Context, message: Message, neighbours: MapState[str, bool], group: ValueState[str]
) -> Iterator[tuple[str, str] | Again[Message]]:
    """Store a new neighbour, or join the group of a neighbour if its name is smaller."""
    node, neighbour, theirs = message
    mine = group.get(node)
    if theirs is None:
        neighbours[neighbour] = True
        yield Again((neighbour, node, mine))
    elif theirs < mine:
        group.set(theirs)
        yield node, theirs
        for other in neighbours:
            yield Again((other, node, theirs))


def ends(link: dict[str, str]) -> list[Message]:
    """Return a message to each end of a link: the other end is a new neighbour."""
    return [(link["from"], link["to"], None), (link["to"], link["from"], None)]


flow = Flow("connected components")
links = flow.source("links", of=dict[str, str]).flat_map(ends)
groups = links.key_by(0).iterate(
    join, MapState("neighbours"), ValueState("group"), fields=("node", "group")
)
groups.sink("groups")
