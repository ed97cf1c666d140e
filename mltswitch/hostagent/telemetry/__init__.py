"""What an agent tells of itself: events as they happen, traces, metrics."""
