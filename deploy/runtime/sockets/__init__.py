"""ZeroMQ sockets of a process: keys, access control, and limits on received messages."""
