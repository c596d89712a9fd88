"""The directories of a run: whether they fit together, how a run opens them, and `--fresh`."""
