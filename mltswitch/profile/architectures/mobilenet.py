"""MobileNet (Howard et al., "MobileNets", 2017, table 1), of full width."""

from collections.abc import Iterator
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, convolution, linear, normalisation
from mltswitch.profile.layers import Layer

STEM_CHANNELS: Final = 32
WIDTHS: Final = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
"""Channels behind each pair of a depthwise and a pointwise convolution."""
CLASSES: Final = 1000


def layers() -> Iterator[Layer]:
    """All layers in forward order."""
    yield convolution("stem", 3, STEM_CHANNELS, 3)
    yield normalisation("stem_bn", STEM_CHANNELS)
    channels = STEM_CHANNELS
    for number, width in enumerate(WIDTHS, start=1):
        yield convolution(f"block{number}.depthwise", 1, channels, 3)
        yield normalisation(f"block{number}.depthwise_bn", channels)
        yield convolution(f"block{number}.pointwise", channels, width, 1)
        yield normalisation(f"block{number}.pointwise_bn", width)
        channels = width
    yield linear("classifier", channels, CLASSES)


ARCHITECTURE: Final = Architecture(
    name="mobilenet",
    description="Image classification, 1,000 classes, for small devices; version 1",
    source=(
        "Howard et al., MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications, "
        "2017 (arXiv:1704.04861)"
    ),
    parameter_convention=(
        "Convolutions without bias, scale and shift of each batch normalisation, classifier with bias; the "
        "paper rounds to 4.2 million."
    ),
    derive=layers,
)
