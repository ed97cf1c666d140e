"""Transports, which carry tensors between two hosts; each is a module."""
