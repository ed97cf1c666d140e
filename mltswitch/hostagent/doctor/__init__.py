"""Finds out what would hurt a job on this host, and on the paths to a peer, before the job does."""
