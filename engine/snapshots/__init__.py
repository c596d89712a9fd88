"""Snapshots: what is asked of a disk, how parts are merged, where they are, and savepoints."""
