"""Keys, certificates and TLS of the control channel."""
