"""The doctor: checks whether this host, and the paths to another one, are fit for the agent."""
