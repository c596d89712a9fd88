"""The coordinator: decides on snapshots and recovery; the only writer of cluster metadata."""
