"""Runs on this machine: directories, inputs, processes, reports, verification and savepoints."""
