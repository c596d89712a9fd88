"""The commands that run flows, look at them and begin new ones; one file each."""
