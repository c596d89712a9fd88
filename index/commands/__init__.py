"""The commands `driftline serve` and `driftline verify`."""
