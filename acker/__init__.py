"""The acker: tracks the progress of all elements with the XOR of frame ids."""
