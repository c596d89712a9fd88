"""Methods of streams, and operators without a function against their plain twins."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline import FlowTest
from driftline.engine.errors import FlowError
from driftline.engine.flow.chains import Chains
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.flow.streams import KeyedStream
from driftline.engine.keygroups import Owners
from driftline.engine.operators.registry import OPERATORS
from driftline.engine.operators.speculative import Speculative
from driftline.engine.reference import run_reference
from tests.engine.operators.operators import Collected

REFERENCE = Path(__file__).parents[3] / "docs/reference/flow.md"


def test_stream_refuses_methods_that_belong_behind_a_key() -> None:
    stream = Flow("streams").source("in")
    for operator in OPERATORS:
        if operator.kind in vars(KeyedStream):
            with pytest.raises(FlowError, match=f"{operator.kind} after 'in' needs a key"):
                getattr(stream, operator.kind)
    for each in (stream, stream.key_by(0)):
        assert not hasattr(each, "windows")


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=12), st.integers(1, 3)
)
def test_distinct_passes_the_first_element_of_each_key_in_label_order(
    records: list[tuple[str, int]], seed: int
) -> None:
    """Elements may reach the step in any order."""
    flow = Flow("distinct")
    flow.source("in", fields=("word", "n")).key_by("word").distinct().sink()
    wanted: dict[str, tuple[str, int]] = {}
    for record in records:
        wanted.setdefault(record[0], record)
    found = list(run_reference(flow, [records]))
    assert [item.value for item in found] == list(wanted.values())
    barrier = Collected()
    chains = Chains(
        make_plan(flow),
        Owners(1),
        barrier,
        lambda vertex, after, failures, maker: Speculative(vertex, after, failures, encoder=maker),
    )
    order = [*enumerate(records, 1)]
    Random(seed).shuffle(order)
    for time, record in order:
        chains.entries[1].push([(time, 0)], [record], None)
    assert barrier.net() == [(item.label, item.sink, item.value) for item in found]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5)), max_size=15))
def test_top_emits_the_largest_elements_whenever_they_change(
    records: list[tuple[str, int]],
) -> None:
    flow = Flow("top")
    flow.source("in", fields=("word", "n")).key_by("word").top(2, by="n").sink()
    rows = []
    for count, (word, _) in enumerate(records, 1):
        mine = [(-n, place) for place, (other, n) in enumerate(records[:count]) if other == word]
        best = sorted(mine)[:2]
        if mine[-1] in best:
            rows.append({"key": word, "top": tuple(records[place] for _, place in best)})
    assert [item.value for item in run_reference(flow, [records])] == rows
    with FlowTest(flow) as test:
        for record in records:
            test.send(record)
        assert test.outputs() == rows


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=15))
def test_distinct_with_a_ttl_passes_elements_that_are_far_from_those_before(
    records: list[tuple[str, int]],
) -> None:
    flow = Flow("distinct")
    source = flow.source("in", fields=("word", "at"), event_time="at", max_delay="30s")
    source.key_by("word").distinct(ttl="5s").sink()
    passed: list[tuple[str, int]] = []
    for word, at in records:
        if all(word != other or abs(at - before) >= 5 for other, before in passed):
            passed.append((word, at))
    assert [item.value for item in run_reference(flow, [records])] == passed
    with FlowTest(flow) as test:
        for record in records:
            test.send(record)
        test.advance_to((30 + 30 + 5) * 1_000_000)
        assert test.outputs() == passed
        assert test.state(flow.vertices[1].name, "a") == {"passed": {}, "(timers)": {}}


def test_key_of_several_fields_is_a_tuple_and_split_divides_a_stream() -> None:
    flow = Flow("several")
    named = flow.source("in", fields=("a", "b", "c"))
    keyed = named.key_by("c", "a").process(lambda context, record: [(context.key, record[1])])
    odd, even = keyed.split(lambda pair: pair[1] % 2, name="parity")
    odd.sink("odd")
    even.sink("even")
    found = [(item.sink, item.value) for item in run_reference(flow, [[(1, 2, 3), (4, 5, 6)]])]
    assert found == [(1, ((3, 1), 2)), (0, ((6, 4), 5))]
    with pytest.raises(FlowError, match=r"key_by\('c', 'd'\).*unknown field"):
        named.key_by("c", "d")
