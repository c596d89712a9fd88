"""Storage: append-only logs of checksummed frames, LMDB, and marks of a run's directories."""
