"""Snapshots of nodes: their store, its jobs, merging, the ledger, and savepoints."""
