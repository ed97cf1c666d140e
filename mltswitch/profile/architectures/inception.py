"""Inception networks: GoogLeNet and Inception-v3, with torchvision's names."""

from collections.abc import Iterator, Mapping
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, Kernel, linear, normalised_convolution
from mltswitch.profile.layers import Layer

CLASSES: Final = 1000

GOOGLENET_STEM: Final = ((64, 7), (64, 1), (192, 3))
"""Channels and kernel size of the convolutions before GoogLeNet's first inception block."""
GOOGLENET_BLOCKS: Final = {
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
"""Channels of GoogLeNet's blocks, as in the paper's columns: #1x1, #3x3 reduce, #3x3, #5x5 reduce, #5x5, pool
proj."""


def googlenet() -> Iterator[Layer]:
    """GoogLeNet (Szegedy et al., "Going Deeper with Convolutions", 2014, table 1) with batch normalisation.

    As trained today: each convolution is followed by a batch normalisation and has no bias, the auxiliary
    classifiers are left out, and the third branch uses 3x3 kernels where the paper has 5x5 (as in
    torchvision). Order: the four branches of a block one after another; the paper draws them side by side.
    """
    channels = 3
    for number, (width, kernel) in enumerate(GOOGLENET_STEM, start=1):
        yield from normalised_convolution(f"conv{number}", channels, width, kernel)
        channels = width
    for block, widths in GOOGLENET_BLOCKS.items():
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


GOOGLENET: Final = Architecture(
    name="googlenet",
    description="Image classification, 1,000 classes",
    source="Szegedy et al., Going Deeper with Convolutions, 2014 (arXiv:1409.4842)",
    parameter_convention=(
        "Without the two auxiliary classifiers; with batch normalisation and without bias after each "
        "convolution, and 3x3 kernels in the branch that the paper gives 5x5 (as in torchvision)."
    ),
    derive=googlenet,
    model_tolerance=0.007,
)

Convolutions = Mapping[str, tuple[int, Kernel]]
"""Channels and kernel of consecutive convolutions by name; each reads the channels that the one before it
outputs."""


def _numbered(name: str, *convolutions: tuple[int, Kernel]) -> Convolutions:
    return {f"{name}_{number}": each for number, each in enumerate(convolutions, start=1)}


_DOUBLE: Final = _numbered("branch3x3dbl", (64, 1), (96, 3), (96, 3))


def _square(pooled: int) -> tuple[Convolutions, ...]:
    five = _numbered("branch5x5", (48, 1), (64, 5))
    return {"branch1x1": (64, 1)}, five, _DOUBLE, {"branch_pool": (pooled, 1)}


def _factorised(width: int) -> tuple[Convolutions, ...]:
    reduce, flat, upright = (width, 1), (width, (1, 7)), (width, (7, 1))
    seven = _numbered("branch7x7", reduce, flat, (192, (7, 1)))
    double = _numbered("branch7x7dbl", reduce, upright, flat, upright, (192, (1, 7)))
    return {"branch1x1": (192, 1)}, seven, double, {"branch_pool": (192, 1)}


_EXPANDED: Final[tuple[Convolutions, ...]] = (  # a and b read the same 384 channels and give 384 each
    {"branch1x1": (320, 1)},
    {"branch3x3_1": (384, 1), "branch3x3_2a": (384, (1, 3)), "branch3x3_2b": (384, (3, 1))},
    {
        **_numbered("branch3x3dbl", (448, 1), (384, 3)),
        "branch3x3dbl_3a": (384, (1, 3)),
        "branch3x3dbl_3b": (384, (3, 1)),
    },
    {"branch_pool": (192, 1)},
)
INCEPTION_STEM: Final = {
    "1a_3x3": (32, 3),
    "2a_3x3": (32, 3),
    "2b_3x3": (64, 3),
    "3b_1x1": (80, 1),
    "4a_3x3": (192, 3),
}
INCEPTION_BLOCKS: Final[Mapping[str, tuple[int, tuple[Convolutions, ...]]]] = {
    "Mixed_5b": (192, _square(32)),
    "Mixed_5c": (256, _square(64)),
    "Mixed_5d": (288, _square(64)),
    "Mixed_6a": (288, ({"branch3x3": (384, 3)}, _DOUBLE)),
    "Mixed_6b": (768, _factorised(128)),
    "Mixed_6c": (768, _factorised(160)),
    "Mixed_6d": (768, _factorised(160)),
    "Mixed_6e": (768, _factorised(192)),
    "AuxLogits": (768, ({"conv0": (128, 1), "conv1": (768, 5)},)),
    "Mixed_7a": (
        768,
        (
            _numbered("branch3x3", (192, 1), (320, 3)),
            _numbered("branch7x7x3", (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)),
        ),
    ),
    "Mixed_7b": (1280, _EXPANDED),
    "Mixed_7c": (2048, _EXPANDED),
}
"""Input channels and branches of each block of Inception-v3."""


def inception_v3() -> Iterator[Layer]:
    """Inception-v3 (Szegedy et al., "Rethinking the Inception Architecture", 2015, table 1).

    With the auxiliary classifier, AuxLogits, for the model trains with it: 27,161,264 parameters; 23,834,568
    without it. Names, kernels and channels are torchvision's.
    Order: AuxLogits runs behind Mixed_6e, whose output it reads; the branches of a block run one after
    another; the paper draws them side by side.
    """
    yield from _chain("Conv2d_", 3, INCEPTION_STEM)
    for block, (inputs, branches) in INCEPTION_BLOCKS.items():
        for branch in branches:
            yield from _chain(f"{block}.", inputs, branch)
        if block == "AuxLogits":
            yield linear(f"{block}.fc", 768, CLASSES)
    yield linear("fc", 2048, CLASSES)


def _chain(prefix: str, channels: int, convolutions: Convolutions) -> Iterator[Layer]:
    for name, (width, kernel) in convolutions.items():
        yield from normalised_convolution(f"{prefix}{name}", channels, width, kernel)
        channels = width


INCEPTION_V3: Final = Architecture(
    name="inception-v3",
    description="Image classification, 1,000 classes",
    source=(
        "Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2015 (arXiv:1512.00567)"
    ),
    parameter_convention=(
        "With the auxiliary classifier that training uses (23,834,568 parameters without it); with batch "
        "normalisation and without bias after each convolution (as in torchvision)."
    ),
    derive=inception_v3,
)
