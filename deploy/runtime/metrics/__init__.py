"""Metrics: what each process of a run tells Prometheus, and those that look after it."""
