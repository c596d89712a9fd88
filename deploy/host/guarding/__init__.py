"""What stands between strangers and a ZeroMQ socket."""
