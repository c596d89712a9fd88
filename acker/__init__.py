"""The acker: tracks how far everything has been worked off, by the XOR of frame ids."""
