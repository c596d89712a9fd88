"""The phases of a run, as the coordinator goes through them.

    GATHERING -> DECIDING -> LOADING -> RUNNING -> STOPPING -> STOPPED -> ENDED
              -> TAKING_OVER -> ASKING -> RUNNING

A master that follows another one takes its incarnation over, if it can (`takeover.py`). A failure
leads from any phase before STOPPING to DECIDING again, through WAITING if recoveries make no
progress. BROKEN: the registry holds something else than what this master has written; only a new
master can go on, or say why not.
"""

from enum import Enum


class Phase(Enum):
    """What the coordinator is doing; the values are for people."""

    GATHERING = "waiting for nodes and fronts"
    WAITING = "waiting before the next recovery"
    TAKING_OVER = "writing that a new master leads"
    ASKING = "asking nodes and fronts how far they are"
    DECIDING = "writing a new incarnation"
    LOADING = "nodes load a snapshot"
    RUNNING = "running"
    STOPPING = "writing how the run ended"
    STOPPED = "telling all members that the run is over"
    ENDED = "over"
    BROKEN = "a new master is needed"


DECIDED = (Phase.STOPPING, Phase.STOPPED, Phase.ENDED, Phase.BROKEN)
"""Phases in which no message of a member changes the outcome of the run."""

UNDER_WAY = (Phase.TAKING_OVER, Phase.ASKING, Phase.LOADING, Phase.RUNNING)
"""Phases in which an incarnation is under way, which a failure ends."""
