"""Texts: wiki pages, words, the sample, and generated documents."""
