"""Published architectures as short derivations of their layers, a module for each family."""

from typing import Final

from mltswitch.profile.architectures import resnet
from mltswitch.profile.architectures.convolutional import ALEXNET, MOBILENET, VGG16
from mltswitch.profile.architectures.inception import GOOGLENET, INCEPTION_V3
from mltswitch.profile.architectures.modules import Architecture
from mltswitch.profile.architectures.transformers import BERT_BASE, GPT2_SMALL, T5_3B

ARCHITECTURES: Final = (
    *resnet.ARCHITECTURES,
    *(VGG16, ALEXNET, MOBILENET, GOOGLENET, INCEPTION_V3, BERT_BASE, GPT2_SMALL, T5_3B),
)

__all__ = ["ARCHITECTURES", "Architecture"]
