"""Paths between hosts, the choice of one for each burst, and what is known of how each path does."""
