"""Published architectures as short derivations of their layers, one module each."""

from typing import Final

from mltswitch.profile.architectures import (
    bert_base,
    googlenet,
    gpt2_small,
    inception_v3,
    resnet50,
    resnet101,
    t5_3b,
    vgg16,
)
from mltswitch.profile.architectures.modules import Architecture

ARCHITECTURES: Final = (
    resnet50.ARCHITECTURE,
    resnet101.ARCHITECTURE,
    vgg16.ARCHITECTURE,
    googlenet.ARCHITECTURE,
    inception_v3.ARCHITECTURE,
    bert_base.ARCHITECTURE,
    gpt2_small.ARCHITECTURE,
    t5_3b.ARCHITECTURE,
)

__all__ = ["ARCHITECTURES", "Architecture"]
