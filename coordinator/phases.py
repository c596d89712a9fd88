"""The phases of a run, as the coordinator goes through them.

    GATHERING -> DECIDING -> LOADING -> RUNNING -> STOPPING -> STOPPED -> ENDED

A failure leads from LOADING or RUNNING to DECIDING again, through WAITING if recoveries make no
progress. BROKEN: the registry holds something else than what this master has written; only a new
master can go on, or say why not.
"""

from enum import Enum


class Phase(Enum):
    """What the coordinator is doing; the values are for people."""

    GATHERING = "waiting for nodes and fronts"
    WAITING = "waiting before the next recovery"
    DECIDING = "writing a new incarnation"
    LOADING = "nodes load a snapshot"
    RUNNING = "running"
    STOPPING = "writing how the run ended"
    STOPPED = "telling all members that the run is over"
    ENDED = "over"
    BROKEN = "a new master is needed"


DECIDED = (Phase.STOPPING, Phase.STOPPED, Phase.ENDED, Phase.BROKEN)
"""Phases in which no message of a member changes the outcome of the run."""
