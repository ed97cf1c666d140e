"""Transports: how one tensor crosses between two hosts. One module each."""
