"""Snapshots: jobs for the disk, the store of parts, their merging, and savepoints."""
