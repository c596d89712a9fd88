"""Queries: from query text to the tree that the index evaluates."""
