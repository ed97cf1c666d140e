"""Inception-v3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015, table 1).

With the auxiliary classifier, AuxLogits, for the model trains with it: 27,161,264 parameters; 23,834,568
without it. Names, kernels and channels are torchvision's.
Order: AuxLogits runs behind Mixed_6e, whose output it reads; the branches of a block run one after another;
the paper draws them side by side.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, Kernel, linear, normalised_convolution
from mltswitch.profile.layers import Layer

Convolutions = Mapping[str, tuple[int, Kernel]]
"""Channels and kernel by name; each reads as many channels as the one before it has."""


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
STEM: Final = {"1a_3x3": (32, 3), "2a_3x3": (32, 3), "2b_3x3": (64, 3), "3b_1x1": (80, 1), "4a_3x3": (192, 3)}
BLOCKS: Final[Mapping[str, tuple[int, tuple[Convolutions, ...]]]] = {
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
"""Channels that a block reads, and its branches."""
CLASSES: Final = 1000


def layers() -> Iterator[Layer]:
    """All layers in forward order."""
    yield from _chain("Conv2d_", 3, STEM)
    for block, (inputs, branches) in BLOCKS.items():
        for branch in branches:
            yield from _chain(f"{block}.", inputs, branch)
        if block == "AuxLogits":
            yield linear(f"{block}.fc", 768, CLASSES)
    yield linear("fc", 2048, CLASSES)


def _chain(prefix: str, channels: int, convolutions: Convolutions) -> Iterator[Layer]:
    for name, (width, kernel) in convolutions.items():
        yield from normalised_convolution(f"{prefix}{name}", channels, width, kernel)
        channels = width


ARCHITECTURE: Final = Architecture(
    name="inception-v3",
    description="Image classification, 1,000 classes",
    source=(
        "Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2015 (arXiv:1512.00567)"
    ),
    parameter_convention=(
        "With the auxiliary classifier that training uses (23,834,568 parameters without it); with batch "
        "normalisation and without bias after each convolution (as in torchvision)."
    ),
    derive=layers,
)
