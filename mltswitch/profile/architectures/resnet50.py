"""ResNet-50 (He et al., "Deep Residual Learning for Image Recognition", 2015, table 1).

Order: a block's shortcut projection runs after its three convolutions, as implementations do it; the paper
draws the two branches side by side.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, convolution, linear, normalisation
from mltswitch.profile.layers import Layer

STEM_CHANNELS: Final = 64
STAGES: Final = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Bottleneck width and number of blocks: conv2_x to conv5_x."""
EXPANSION: Final = 4
"""A block's output has four times the channels of its bottleneck."""
CLASSES: Final = 1000


def layers(stages: Sequence[tuple[int, int]] = STAGES) -> Iterator[Layer]:
    """All layers in forward order, also of a deeper one."""
    yield convolution("conv1", 3, STEM_CHANNELS, 7)
    yield normalisation("bn1", STEM_CHANNELS)
    channels = STEM_CHANNELS
    for stage, (width, blocks) in enumerate(stages, start=1):
        for block in range(blocks):
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


ARCHITECTURE: Final = Architecture(
    name="resnet50",
    description="Image classification, 1,000 classes",
    source="He et al., Deep Residual Learning for Image Recognition, 2015 (arXiv:1512.03385)",
    parameter_convention=(
        "Convolutions without bias, scale and shift of each batch normalisation, classifier with bias; "
        "the running averages of batch normalisation are not trained and not counted."
    ),
    derive=layers,
    model_tolerance=0.024,
)
