"""One run: compares its directories, drives its processes, verifies and saves its state."""
