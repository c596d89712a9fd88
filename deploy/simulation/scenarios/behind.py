"""Consumers that are slow: after each bundle their process stands still for a while."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Behind:
    """A consumer that stands still for `seconds` after each bundle, until the time `until_s`.

    `waiting_bytes`: of outputs that may wait for it before a node holds its input back.
    """

    seconds: float
    until_s: float
    waiting_bytes: int
