"""Pictures: names keep their colours, and a missing matplotlib gives a one-sentence error."""

import pytest

from driftline.engine.errors import Unavailable
from driftline.engine.policy import POLICIES
from driftline.engine.ui import pictures
from driftline.engine.ui.pictures import COLOURS, INK, colour_of_policy, colours_of


def test_without_matplotlib_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'driftline\[bench\]'"):
        pictures.check_matplotlib()


def test_colours_are_unique_per_name_and_repeat_when_exhausted() -> None:
    assert colours_of(["b", "a", "b"]) == {"b": COLOURS[0], "a": COLOURS[1]}
    many = [str(number) for number in range(len(COLOURS) + 1)]
    assert list(colours_of(many).values()) == [*COLOURS, COLOURS[0]]


def test_every_policy_has_a_colour_of_its_own() -> None:
    colours = {colour_of_policy(name) for name in POLICIES}
    assert len(colours - {INK}) == len(POLICIES)
    assert colour_of_policy("a policy of another version") == INK
