"""Random trees of queries."""

from __future__ import annotations

from hypothesis import strategies as st

from driftline.index.query.syntax import (
    All,
    And,
    Fuzzy,
    In,
    Leaf,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Range,
    Words,
)


def trees(leaves: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    """Trees with AND, OR and NOT over these leaves."""
    return st.recursive(
        leaves,
        lambda nodes: (
            nodes.map(Not)
            | st.lists(nodes, min_size=2, max_size=3).map(lambda parts: And(tuple(parts)))
            | st.lists(nodes, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts)))
        ),
        max_leaves=8,
    )


# Whatever has a meaning somewhere, and what is near to it.
STRANGE = ' \n\t\u3000()[]{}"\\*~:-+<>=^|&.!aA0é東_'
letters = st.sampled_from(STRANGE) | st.characters(exclude_categories=["Cs"])
pieces = st.sampled_from(
    ["AND", "OR", "NOT", "TO", "ANDx", "a:", "OR:", "a-b:c", "*", "~1", '"', "\\"]
)
texts = st.lists(letters | pieces, max_size=6).map("".join)
some = texts.filter(bool)
names = st.from_regex(r"[^\W\d][\w.-]{0,5}", fullmatch=True) | st.sampled_from(["AND", "NOT", "TO"])


def _range(low: str | None, high: str | None, with_low: bool, with_high: bool) -> Range:
    return Range(low, high, with_low or low is None, with_high or high is None)


ranges = st.builds(_range, st.none() | texts, st.none() | texts, st.booleans(), st.booleans())
leaves: st.SearchStrategy[Leaf] = (
    st.just(All())
    | some.map(Words)
    | some.map(Prefix)
    | some.map(Fuzzy)
    | st.builds(Phrase, texts, st.integers(0, 100))
)
any_trees = trees(
    leaves
    | st.builds(In, names, ranges)
    | st.builds(In, names, trees(leaves | st.builds(In, names, leaves | ranges)))
)
