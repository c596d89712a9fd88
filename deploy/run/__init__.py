"""One run: its directories, what is found in them, its command, and what is left of it."""
