"""The default loss model: bursts, strict priority and two thresholds, solved through completion times.

docs/model.md derives the model. `port` goes from class to class, `passage` solves one class,
`rational` carries what one class does to the next, `counted` is the variant that counts the packet in
transmission.
"""

from mltswitch.queueing.completion.model import predict, predict_losses

__all__ = ["predict", "predict_losses"]
