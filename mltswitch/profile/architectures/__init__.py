"""Published architectures as short derivations of their layers, one module each."""

from typing import Final

from mltswitch.profile.architectures import (
    alexnet,
    bert_base,
    googlenet,
    gpt2_small,
    inception_v3,
    mobilenet,
    resnet50,
    resnet101,
    resnet152,
    t5_3b,
    vgg16,
)
from mltswitch.profile.architectures.modules import Architecture

ARCHITECTURES: Final = (
    resnet50.ARCHITECTURE,
    resnet101.ARCHITECTURE,
    resnet152.ARCHITECTURE,
    vgg16.ARCHITECTURE,
    alexnet.ARCHITECTURE,
    mobilenet.ARCHITECTURE,
    googlenet.ARCHITECTURE,
    inception_v3.ARCHITECTURE,
    bert_base.ARCHITECTURE,
    gpt2_small.ARCHITECTURE,
    t5_3b.ARCHITECTURE,
)

__all__ = ["ARCHITECTURES", "Architecture"]
