"""Runs a flow as one Spark job, with the labels and outputs of a run on nodes."""
