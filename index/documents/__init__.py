"""Documents: their fields, and the words in these."""
