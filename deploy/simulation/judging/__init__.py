"""Whether a simulated run is right: where it delivers to, and what its outputs must be."""
