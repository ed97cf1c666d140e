"""What captures, counters and problem files say of a queue's arrivals, as data for the loss models."""
