"""BERT-base, uncased (Devlin et al., "BERT", 2018, section 3): encoder and pooler.

Order: within a block query, key and value run one after another; names follow Hugging Face's BertModel.
"""

from collections.abc import Iterator
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, embedding, linear, normalisation
from mltswitch.profile.layers import Layer

WIDTH: Final = 768
BLOCKS: Final = 12
FEED_FORWARD: Final = 4 * WIDTH
VOCABULARY: Final = 30_522
POSITIONS: Final = 512
SEGMENTS: Final = 2


def layers() -> Iterator[Layer]:
    """All layers in forward order."""
    yield embedding("embeddings.word_embeddings", VOCABULARY, WIDTH)
    yield embedding("embeddings.token_type_embeddings", SEGMENTS, WIDTH)
    yield embedding("embeddings.position_embeddings", POSITIONS, WIDTH)
    yield normalisation("embeddings.LayerNorm", WIDTH)
    for block in range(BLOCKS):
        yield from _block(f"encoder.layer.{block}")
    yield linear("pooler.dense", WIDTH, WIDTH)


def _block(name: str) -> Iterator[Layer]:
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        yield linear(f"{name}.attention.{part}", WIDTH, WIDTH)
    yield normalisation(f"{name}.attention.output.LayerNorm", WIDTH)
    yield linear(f"{name}.intermediate.dense", WIDTH, FEED_FORWARD)
    yield linear(f"{name}.output.dense", FEED_FORWARD, WIDTH)
    yield normalisation(f"{name}.output.LayerNorm", WIDTH)


ARCHITECTURE: Final = Architecture(
    name="bert-base",
    description="Text encoder, English, uncased vocabulary",
    source="Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, 2018 (arXiv:1810.04805)",
    parameter_convention=(
        "Embeddings, encoder and pooler, without the heads for pre-training (masked words, next sentence); "
        "the paper rounds to 110 million."
    ),
    derive=layers,
)
