"""What every service of a flow has over HTTP: reads as of a time, streams, tokens, limits, metrics.

What a service is about stands elsewhere: an `Operation` says what a route takes and gives, for the
server and for its description. All of it stands on a `Backend`.
"""
