"""VGG-16 (Simonyan and Zisserman, "Very Deep Convolutional Networks", 2014, table 1, configuration D)."""

from collections.abc import Iterator
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, convolution, linear
from mltswitch.profile.layers import Layer

STAGES: Final = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of 3x3 convolutions; each stage ends with a pooling."""
FINAL_POSITIONS: Final = 7 * 7
"""Of a 224x224 image after five poolings."""
HIDDEN: Final = 4096
CLASSES: Final = 1000


def layers() -> Iterator[Layer]:
    """All layers in forward order."""
    channels, position = 3, 0
    for width, convolutions in STAGES:
        for _ in range(convolutions):
            yield convolution(f"features.{position}", channels, width, 3, bias=True)
            channels = width
            position += 2  # the convolution and its ReLU
        position += 1  # the pooling
    # Each hidden layer is followed by a ReLU and a dropout.
    yield linear("classifier.0", channels * FINAL_POSITIONS, HIDDEN)
    yield linear("classifier.3", HIDDEN, HIDDEN)
    yield linear("classifier.6", HIDDEN, CLASSES)


ARCHITECTURE: Final = Architecture(
    name="vgg16",
    description="Image classification, 1,000 classes; configuration D, without batch normalisation",
    source=(
        "Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2014 "
        "(arXiv:1409.1556)"
    ),
    parameter_convention="All weights and biases; the paper rounds to 138 million.",
    derive=layers,
    model_tolerance=0.008,
)
