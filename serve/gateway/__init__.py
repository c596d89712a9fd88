"""The gateway, which serves the HTTP clients of a service."""
