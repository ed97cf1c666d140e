"""ResNet-50, -101 and -152 (He et al., "Deep Residual Learning for Image Recognition", 2015, table 1).

Order: a block's shortcut projection runs after its three convolutions, as implementations do it; the paper
draws the two branches side by side.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, convolution, linear, normalisation
from mltswitch.profile.layers import Layer

STEM_CHANNELS: Final = 64
WIDTHS: Final = (64, 128, 256, 512)
"""Bottleneck widths of conv2_x to conv5_x."""
EXPANSION: Final = 4
"""Ratio of a block's output channels to the width of its bottleneck."""
CLASSES: Final = 1000


def layers(*blocks: int) -> Iterator[Layer]:
    """All layers in forward order, of the network with so many blocks in each of conv2_x to conv5_x."""
    yield convolution("conv1", 3, STEM_CHANNELS, 7)
    yield normalisation("bn1", STEM_CHANNELS)
    channels = STEM_CHANNELS
    for stage, (width, count) in enumerate(zip(WIDTHS, blocks, strict=True), start=1):
        for block in range(count):
            yield from _bottleneck(f"layer{stage}.{block}", channels, width, has_projection=block == 0)
            channels = width * EXPANSION
    yield linear("fc", channels, CLASSES)


def _bottleneck(name: str, inputs: int, width: int, *, has_projection: bool) -> Iterator[Layer]:
    outputs = width * EXPANSION
    for number, (before, after, kernel) in enumerate(
        ((inputs, width, 1), (width, width, 3), (width, outputs, 1)), start=1
    ):
        yield convolution(f"{name}.conv{number}", before, after, kernel)
        yield normalisation(f"{name}.bn{number}", after)
    if has_projection:
        yield convolution(f"{name}.downsample.0", inputs, outputs, 1)
        yield normalisation(f"{name}.downsample.1", outputs)


RESNET50: Final = Architecture(
    name="resnet50",
    description="Image classification, 1,000 classes",
    source="He et al., Deep Residual Learning for Image Recognition, 2015 (arXiv:1512.03385)",
    parameter_convention=(
        "Convolutions without bias, scale and shift of each batch normalisation, classifier with bias; "
        "the running averages of batch normalisation are not trained and not counted."
    ),
    derive=partial(layers, 3, 4, 6, 3),
    model_tolerance=0.024,
)
ARCHITECTURES: Final = (
    RESNET50,
    replace(RESNET50, name="resnet101", derive=partial(layers, 3, 4, 23, 3), model_tolerance=0.033),
    replace(RESNET50, name="resnet152", derive=partial(layers, 3, 8, 36, 3), model_tolerance=None),
)
