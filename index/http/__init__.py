"""The index over HTTP."""
