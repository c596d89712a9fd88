"""The HTTP part that all services share: reads as of a time, streams, tokens, limits, metrics.

An `Operation` describes a route and its parameters, for the server and for the OpenAPI description.
All operations use a `Backend`.
"""
