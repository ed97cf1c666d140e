"""Is this host, and the way to that one, fit for the agent?"""
