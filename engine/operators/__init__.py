"""Operators: stateless steps, and keyed steps in label order or in order of arrival."""
