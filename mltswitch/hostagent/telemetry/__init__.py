"""What an agent tells: events, counts, metrics."""
