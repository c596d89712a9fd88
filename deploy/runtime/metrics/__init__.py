"""Prometheus metrics and health checks of each process of a run."""
