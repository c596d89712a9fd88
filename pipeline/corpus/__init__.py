"""Corpora: the documents of a dump, written in parallel, and the statistics of their words."""
