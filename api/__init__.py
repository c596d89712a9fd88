"""The Python API: `run`, `simulate` and `FlowTest`."""
