"""Queries: the parser, and the tree that the index evaluates."""
