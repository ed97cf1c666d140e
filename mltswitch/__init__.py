"""From a neural network and a switch fabric to queue thresholds that hold on the wire."""

__version__ = "0.1.0.dev0"
