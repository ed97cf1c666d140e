"""Keys, certificates and TLS."""
