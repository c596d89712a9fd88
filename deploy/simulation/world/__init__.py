"""What happens in a simulated run, and where: time, network, disks, files, faults."""
