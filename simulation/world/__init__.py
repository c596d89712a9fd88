"""The simulated world: time, network, hosts, disks, files, faults."""
