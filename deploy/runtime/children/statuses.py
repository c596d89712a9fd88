"""The exit statuses of the processes of a run, as the supervisor understands them."""

STOPPED = 80
"""Exit status of a process that was told to stop."""

CANNOT_START = 2
"""Exit status of a process that has said why it cannot start."""

BROKEN = 3
"""Exit status of a master that a new one has to replace."""

MADE_WAY = 4
"""Exit status of a master that leaves the lead to the next one, as it did not reach all members."""

DIED = 1
"""Exit status of a process after an unexpected exception, which it logs."""
