"""Global optimum of the thresholds for models in which a queue's losses depend on its own thresholds only."""

from mltswitch.queueing.optimiser.separable import SEPARABLE, optimise_separable

__all__ = ["SEPARABLE", "optimise_separable"]
