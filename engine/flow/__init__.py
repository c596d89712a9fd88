"""Flows as users write them: graph, outline, plan, chains, loading, and digests of their code."""
