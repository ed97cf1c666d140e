"""AlexNet of one column (Krizhevsky, "One weird trick for parallelizing convolutional networks", 2014)."""

from collections.abc import Iterator
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, convolution, linear
from mltswitch.profile.layers import Layer

CONVOLUTIONS: Final = ((0, 3, 64, 11), (3, 64, 192, 5), (6, 192, 384, 3), (8, 384, 256, 3), (10, 256, 256, 3))
"""Position among the features, channels before and after, and kernel."""
FINAL_POSITIONS: Final = 6 * 6
HIDDEN: Final = 4096
CLASSES: Final = 1000


def layers() -> Iterator[Layer]:
    """All layers in forward order."""
    for position, inputs, outputs, kernel in CONVOLUTIONS:
        yield convolution(f"features.{position}", inputs, outputs, kernel, bias=True)
    yield linear("classifier.1", CONVOLUTIONS[-1][2] * FINAL_POSITIONS, HIDDEN)
    yield linear("classifier.4", HIDDEN, HIDDEN)
    yield linear("classifier.6", HIDDEN, CLASSES)


ARCHITECTURE: Final = Architecture(
    name="alexnet",
    description="Image classification, 1,000 classes; one column, without local response normalisation",
    source=(
        "Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014 (arXiv:1404.5997)"
    ),
    parameter_convention="All weights and biases.",
    derive=layers,
)
