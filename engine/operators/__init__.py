"""Operators: stateless steps, and keyed ones in label order or as elements come."""
