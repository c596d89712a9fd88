"""Scenarios: the flows, the records, and all settings that a seed decides."""
