"""Storage: append-only logs of checksummed frames, LMDB, and the owners of directories."""
