"""GoogLeNet (Szegedy et al., "Going Deeper with Convolutions", 2014, table 1) with batch normalisation.

As trained today: each convolution is followed by a batch normalisation and has no bias, the auxiliary
classifiers are left out, and the third branch uses 3x3 kernels where the paper has 5x5 (as in torchvision).
Order: the four branches of a block one after another; the paper draws them side by side.
"""

from collections.abc import Iterator
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, linear, normalised_convolution
from mltswitch.profile.layers import Layer

STEM: Final = ((64, 7), (64, 1), (192, 3))
"""Channels and kernel of the convolutions before the first inception block."""
INCEPTION: Final = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Channels as in the paper's columns: #1x1, #3x3 reduce, #3x3, #5x5 reduce, #5x5, pool proj."""
CLASSES: Final = 1000


def layers() -> Iterator[Layer]:
    """All layers in forward order."""
    channels = 3
    for number, (width, kernel) in enumerate(STEM, start=1):
        yield from normalised_convolution(f"conv{number}", channels, width, kernel)
        channels = width
    for block, widths in INCEPTION.items():
        yield from _inception(f"inception{block}", channels, widths)
        direct, _, wide, _, wider, pooled = widths
        channels = direct + wide + wider + pooled
    yield linear("fc", channels, CLASSES)


def _inception(name: str, inputs: int, widths: tuple[int, ...]) -> Iterator[Layer]:
    direct, reduce_3, wide, reduce_5, wider, pooled = widths
    yield from normalised_convolution(f"{name}.branch1", inputs, direct, 1)
    for branch, reduced, outputs in ((2, reduce_3, wide), (3, reduce_5, wider)):
        yield from normalised_convolution(f"{name}.branch{branch}.0", inputs, reduced, 1)
        yield from normalised_convolution(f"{name}.branch{branch}.1", reduced, outputs, 3)
    yield from normalised_convolution(f"{name}.branch4.1", inputs, pooled, 1)  # branch4.0 is the pooling


ARCHITECTURE: Final = Architecture(
    name="googlenet",
    description="Image classification, 1,000 classes",
    source="Szegedy et al., Going Deeper with Convolutions, 2014 (arXiv:1409.4842)",
    parameter_convention=(
        "Without the two auxiliary classifiers; with batch normalisation and without bias after each "
        "convolution, and 3x3 kernels in the branch that the paper gives 5x5 (as in torchvision)."
    ),
    derive=layers,
    model_tolerance=0.007,
)
