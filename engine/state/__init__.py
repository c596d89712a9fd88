"""Managed state: what a keyed operator remembers, undoes, and gives to snapshots."""
