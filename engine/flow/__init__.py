"""Flows: their streams and graph, outline, plan, chains, loading, and digests of their code."""
