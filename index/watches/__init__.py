"""Stored queries: which versions of documents begin or cease to match them."""
