"""The control channel between two agents: TCP with TLS 1.3, never blocking; and the keys of a job."""
