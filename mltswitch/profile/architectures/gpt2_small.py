"""GPT-2 small (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2).

The output layer is the token embedding again, so it stands once, as `transformer.wte`, at the front: its
gradient is complete only when the backward pass arrives there. Names follow Hugging Face's GPT2LMHeadModel.
"""

from collections.abc import Iterator
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, embedding, normalisation, projection
from mltswitch.profile.layers import Layer

WIDTH: Final = 768
BLOCKS: Final = 12
VOCABULARY: Final = 50_257
POSITIONS: Final = 1024


def layers() -> Iterator[Layer]:
    """All layers in forward order."""
    yield embedding("transformer.wte", VOCABULARY, WIDTH)
    yield embedding("transformer.wpe", POSITIONS, WIDTH)
    for block in range(BLOCKS):
        yield from _block(f"transformer.h.{block}")
    yield normalisation("transformer.ln_f", WIDTH)


def _block(name: str) -> Iterator[Layer]:
    yield normalisation(f"{name}.ln_1", WIDTH)
    yield projection(f"{name}.attn.c_attn", WIDTH, 3 * WIDTH)  # query, key and value in one
    yield projection(f"{name}.attn.c_proj", WIDTH, WIDTH)
    yield normalisation(f"{name}.ln_2", WIDTH)
    yield projection(f"{name}.mlp.c_fc", WIDTH, 4 * WIDTH)
    yield projection(f"{name}.mlp.c_proj", 4 * WIDTH, WIDTH)


ARCHITECTURE: Final = Architecture(
    name="gpt2-small",
    description="Text generation, 1,024 tokens of context",
    source="Radford et al., Language Models are Unsupervised Multitask Learners, 2019",
    parameter_convention=(
        "The output layer shares the token embedding and counts once, at transformer.wte in front; the paper "
        "prints 117 million, its authors later corrected the figure to 124 million."
    ),
    derive=layers,
)
