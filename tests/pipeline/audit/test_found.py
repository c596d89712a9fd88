"""Lines of outputs that are none."""

from __future__ import annotations

import pytest

from driftline.pipeline.audit.found import _label, same_line


@pytest.mark.parametrize("line", ["", "{", "7", '{"t": 7}', '{"t": ["a", 1]}', "[" * 200_000])
def test_a_line_that_is_none_has_no_label_and_is_no_other_one(line: str) -> None:
    assert _label(line) is None
    assert not same_line('{"t": [1, 0]}', line)
