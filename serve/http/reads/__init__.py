"""Reads as of a time: values, lists by cursor, and the stream of changes."""
