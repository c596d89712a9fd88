"""Postings: versions that contain a word, with positions; in memory, in segment files, merged."""
