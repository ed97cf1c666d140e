"""Global optimum of the thresholds for models in which a queue's losses depend on its own thresholds only."""

from mltswitch.queueing.optimiser.legacy import GradientQueue, Optimum, optimise
from mltswitch.queueing.optimiser.separable import least_buffer_packets, optimise_separable

__all__ = ["GradientQueue", "Optimum", "least_buffer_packets", "optimise", "optimise_separable"]
