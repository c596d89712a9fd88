"""Postings: which versions have a word, and where; in memory, in segment files, and merged."""
