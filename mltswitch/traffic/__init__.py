"""Traffic as data at the border: what captures, counters and bare problems say of a queue's arrivals."""
