"""Managed state of keyed operators: it can be undone, and written to snapshots."""
