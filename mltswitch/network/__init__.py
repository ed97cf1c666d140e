"""A whole fabric in packets: the plan in every switch, the agent's rules in every host."""
