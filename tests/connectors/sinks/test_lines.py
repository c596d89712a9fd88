"""JSON line of an output: fixed, readable, and always valid JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.connectors.sinks import JsonLines
from driftline.connectors.sinks.lines import LEVELS_MAX
from driftline.engine.errors import PayloadError
from driftline.engine.operators.steps import FAILURES
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.codec import round_trip
from tests.connectors.sinks.bundles import FAILURE, FLOW

LINES = JsonLines(FLOW)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (("слово", 2), '{"word": "слово", "count": 2}'),
        ((1, 2, 3), "[1, 2, 3]"),
        ({"a": (1, None, True)}, '{"a": [1, null, true]}'),
        ((0.1, -0.0), '{"word": 0.1, "count": -0.0}'),
        ('"\n\u2028', '"\\"\\n\u2028"'),
    ],
)
def test_line_contains_label_and_value(value: object, text: str) -> None:
    assert LINES.format(Item((7, 0, 12), 0, value)) == f'{{"t": [7, 0, 12], "value": {text}}}'


def test_dead_letter_line_has_named_fields() -> None:
    value = json.loads(LINES.format(Item((7, 0), FAILURES, FAILURE)))["value"]
    assert list(value) == ["operator", "key", "record", "error", "line"]
    assert (*value.values(), "") == FAILURE


UNHELD = [b"bytes" * 100, float("nan"), {1: "x" * 5000}, {"a": {("a", 1): 1}}]


@pytest.mark.parametrize("value", [*UNHELD, ("a", float("inf"))], ids=repr)
def test_output_unsupported_by_json_becomes_a_dead_letter(value: object) -> None:
    item = Item((7, 0, 3), 0, round_trip(value))
    with pytest.raises(PayloadError, match="--on-error dead-letter"):
        LINES.encode_item(item)
    letter, line = JsonLines(FLOW, dead_letters=True).encode_item(item)
    assert (letter.label, letter.sink) == ((7, 0, 3), FAILURES)
    found = json.loads(line)
    assert found["t"] == [7, 0, 3]
    assert list(found["value"]) == ["operator", "key", "text", "error", "line"]
    assert found["value"]["operator"] == "counts"
    assert found["value"]["text"] == repr(item.value)
    assert "cannot write the output at label [7, 0, 3] as JSON: " in found["value"]["error"]
    assert found["value"]["line"] == "what it returned"


@pytest.mark.parametrize("levels", [LEVELS_MAX, LEVELS_MAX + 1, 900])
def test_depth_limit_of_an_output_does_not_depend_on_the_stack(levels: int) -> None:
    value: object = ()
    for _ in range(levels - 1):
        value = (value,)
    lines = JsonLines(FLOW, dead_letters=True)
    item = Item((7, 0), 1, value)

    def deeper(frames: int) -> tuple[Item, str]:
        return deeper(frames - 1) if frames else lines.encode_item(item)

    letter, line = deeper(0)
    assert (letter.sink == FAILURES) == (levels > LEVELS_MAX)
    assert deeper(200)[1] == line


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(json_values, st.lists(st.integers(0, 2**62), min_size=2))
def test_formatted_line_has_no_line_breaks_and_round_trips(value: object, label: list[int]) -> None:
    line = LINES.format(Item(tuple(label), 1, value))
    assert "\n" not in line
    assert json.loads(line) == {"t": label, "value": value}
    assert line == json.dumps({"t": label, "value": value}, ensure_ascii=False)
