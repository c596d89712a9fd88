"""Nodes and the other roles, the runtime that drives them, local runs, clusters, and commands."""
