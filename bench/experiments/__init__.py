"""Experiments: their runs, the order of the runs, and the computation of the figures."""
