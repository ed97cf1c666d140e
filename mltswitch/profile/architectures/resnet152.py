"""ResNet-152 (He et al., "Deep Residual Learning for Image Recognition", 2015, table 1)."""

from dataclasses import replace
from functools import partial
from typing import Final

from mltswitch.profile.architectures import resnet50
from mltswitch.profile.architectures.modules import Architecture

STAGES: Final = ((64, 3), (128, 8), (256, 36), (512, 3))
"""Bottleneck width and number of blocks: conv2_x to conv5_x."""

ARCHITECTURE: Final[Architecture] = replace(
    resnet50.ARCHITECTURE, name="resnet152", derive=partial(resnet50.layers, STAGES), model_tolerance=None
)
