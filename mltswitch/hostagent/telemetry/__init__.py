"""What an agent reports: events, counters and metrics."""
