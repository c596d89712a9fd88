"""Driftline called from Python: `run`, `simulate` and `FlowTest`."""
