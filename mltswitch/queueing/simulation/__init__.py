"""The model `simulate`: a compiled event simulation of one port, the referee of the analytic models.

How it assumes that a port behaves, where switches differ:

- A packet is judged when it arrives, also where it finds the line idle: with S = 0 every unimportant packet
  is dropped. One that finds the line idle then goes into transmission and never counts as waiting, not even
  against the shared buffer.
- A transmission that ends at the moment of an arrival has ended.
- RED tests the limits against the length and S against the average. Between S and the maximum every packet
  draws for itself. (Floyd and Jacobson's count of packets since the last drop, which Linux keeps, spreads the
  drops evenly and makes them up to twice as frequent.) Without room between the two, S is a step, and
  `mark_probability` says nothing.
- The average takes a sample per arrival, before the packet joins, and decays over idle time as in Linux's
  red: by one factor 1 - weight per packet time since the queue's last transmission ended or its last packet
  came.
- Deficit round robin visits its queues in their order; the least weight is worth one packet a round.
- A burst of a trace comes at an exponential gap; the index of dispersion says nothing here.
"""

from mltswitch.queueing.simulation.referee import simulate

__all__ = ["simulate"]
