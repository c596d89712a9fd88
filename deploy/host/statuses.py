"""The exit statuses of the processes of a run, as the supervisor understands them."""

STOPPED = 80
"""Exit status of a process that was told to stop."""

CANNOT_START = 2
"""Exit status of a process that has said why it cannot start."""

BROKEN = 3
"""Exit status of a master that a new one has to replace."""

DIED = 1
"""Exit status of a process after an unexpected exception, which it logs."""
