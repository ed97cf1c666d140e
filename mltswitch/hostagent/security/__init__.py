"""Keys, certificates and TLS of the agents' control channel."""
