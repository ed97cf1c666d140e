"""Distributed training over the host agent: synchronizations, topologies, and the nodes that carry them
out."""
