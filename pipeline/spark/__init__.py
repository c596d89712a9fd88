"""Spark itself: sessions, tasks over Arrow batches, progress, and what went wrong in a task."""
