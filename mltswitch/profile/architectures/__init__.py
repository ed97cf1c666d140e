"""Published architectures as short derivations of their layers, one module each."""

from typing import Final

from mltswitch.profile.architectures import bert_base, googlenet, gpt2_small, resnet50, t5_3b, vgg16
from mltswitch.profile.architectures.modules import Architecture

ARCHITECTURES: Final = (
    resnet50.ARCHITECTURE,
    vgg16.ARCHITECTURE,
    googlenet.ARCHITECTURE,
    bert_base.ARCHITECTURE,
    gpt2_small.ARCHITECTURE,
    t5_3b.ARCHITECTURE,
)

__all__ = ["ARCHITECTURES", "Architecture"]
