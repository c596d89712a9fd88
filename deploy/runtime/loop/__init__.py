"""The loop of a process: it drives roles, and reports that the process lives."""
