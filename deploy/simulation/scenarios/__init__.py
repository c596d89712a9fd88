"""What is simulated: flows, records, and all else that a seed decides."""
