"""Storage: append-only logs of checksummed frames, and what marks a directory as a run's."""
