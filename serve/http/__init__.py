"""HTTP interface of services: reads as of a time, streams, access tokens, limits, metrics.

An `Operation` declares a route and its parameters; the server and the OpenAPI description use it.
Handlers reach the flow, the journal and the views through a `Backend`.
"""
