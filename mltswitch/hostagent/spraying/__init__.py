"""Paths: what a plan says of them, what root sets up, and who gets which share."""
