"""Distributed training over the host agent: synchronization, topology, and the executor that drives both."""
