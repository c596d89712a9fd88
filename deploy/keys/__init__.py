"""Keys of CURVE, and what each of them is for."""
