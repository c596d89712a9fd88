"""The acker: tracks how far everything is settled, by the XOR of frame ids."""
