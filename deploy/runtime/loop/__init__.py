"""The loop of a process: it drives parties, and tells how they are."""
