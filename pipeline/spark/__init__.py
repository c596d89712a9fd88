"""Spark itself: sessions, tasks over Arrow batches, progress, and the errors of tasks."""
