"""Processes of a command: their start, what they say, how they end, and that none outlives it."""
