"""Queries: from what a user writes to what the index evaluates."""
