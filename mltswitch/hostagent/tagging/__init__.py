"""Tagging: the class and the importance of packets."""
