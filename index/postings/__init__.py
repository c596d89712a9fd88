"""Postings (versions that contain a word, with positions) in memory and in segment files."""
