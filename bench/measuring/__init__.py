"""Measurement: the documents, the meter, and the loops that drive the measured system."""
