"""Plain convolutional networks with a classifier at the end: AlexNet, VGG-16 and MobileNet."""

from collections.abc import Iterator
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, convolution, linear, normalisation
from mltswitch.profile.layers import Layer

CLASSES: Final = 1000
HIDDEN: Final = 4096
"""Width of the hidden layers of AlexNet and VGG-16."""

ALEXNET_CONVOLUTIONS: Final = (
    (0, 3, 64, 11),
    (3, 64, 192, 5),
    (6, 192, 384, 3),
    (8, 384, 256, 3),
    (10, 256, 256, 3),
)
"""AlexNet's convolutions: index in `features`, input and output channels, and kernel size."""
ALEXNET_POSITIONS: Final = 6 * 6


def alexnet() -> Iterator[Layer]:
    """AlexNet of one column (Krizhevsky, "One weird trick for parallelizing", 2014)."""
    for position, inputs, outputs, kernel in ALEXNET_CONVOLUTIONS:
        yield convolution(f"features.{position}", inputs, outputs, kernel, bias=True)
    yield linear("classifier.1", ALEXNET_CONVOLUTIONS[-1][2] * ALEXNET_POSITIONS, HIDDEN)
    yield linear("classifier.4", HIDDEN, HIDDEN)
    yield linear("classifier.6", HIDDEN, CLASSES)


ALEXNET: Final = Architecture(
    name="alexnet",
    description="Image classification, 1,000 classes; one column, without local response normalisation",
    source=(
        "Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014 (arXiv:1404.5997)"
    ),
    parameter_convention="All weights and biases.",
    derive=alexnet,
)

VGG16_STAGES: Final = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of 3x3 convolutions; each stage ends with a pooling."""
VGG16_POSITIONS: Final = 7 * 7
"""Positions that are left of a 224x224 image after five poolings."""


def vgg16() -> Iterator[Layer]:
    """VGG-16 (Simonyan and Zisserman, "Very Deep Convolutional Networks", 2014, table 1, configuration D)."""
    channels, position = 3, 0
    for width, convolutions in VGG16_STAGES:
        for _ in range(convolutions):
            yield convolution(f"features.{position}", channels, width, 3, bias=True)
            channels = width
            position += 2  # the convolution and its ReLU
        position += 1  # the pooling
    # Each hidden layer is followed by a ReLU and a dropout.
    yield linear("classifier.0", channels * VGG16_POSITIONS, HIDDEN)
    yield linear("classifier.3", HIDDEN, HIDDEN)
    yield linear("classifier.6", HIDDEN, CLASSES)


VGG16: Final = Architecture(
    name="vgg16",
    description="Image classification, 1,000 classes; configuration D, without batch normalisation",
    source=(
        "Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2014 "
        "(arXiv:1409.1556)"
    ),
    parameter_convention="All weights and biases; the paper rounds to 138 million.",
    derive=vgg16,
    model_tolerance=0.008,
)

MOBILENET_STEM: Final = 32
MOBILENET_WIDTHS: Final = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
"""Output channels of each pair of a depthwise and a pointwise convolution in MobileNet."""


def mobilenet() -> Iterator[Layer]:
    """MobileNet (Howard et al., "MobileNets", 2017, table 1), of full width."""
    yield convolution("stem", 3, MOBILENET_STEM, 3)
    yield normalisation("stem_bn", MOBILENET_STEM)
    channels = MOBILENET_STEM
    for number, width in enumerate(MOBILENET_WIDTHS, start=1):
        yield convolution(f"block{number}.depthwise", 1, channels, 3)
        yield normalisation(f"block{number}.depthwise_bn", channels)
        yield convolution(f"block{number}.pointwise", channels, width, 1)
        yield normalisation(f"block{number}.pointwise_bn", width)
        channels = width
    yield linear("classifier", channels, CLASSES)


MOBILENET: Final = Architecture(
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
    derive=mobilenet,
)
