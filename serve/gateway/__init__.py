"""The gateway: where clients of a service come in."""
