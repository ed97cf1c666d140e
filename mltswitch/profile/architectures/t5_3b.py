"""T5-3B (Raffel et al., "Exploring the Limits of Transfer Learning", 2019, section 3.7).

One embedding serves the encoder, the decoder and the output; it stands once, as `shared`, at the front.
Only the first block of each stack has a relative position bias, read after query, key and value. The decoder
runs after the encoder. Names follow Hugging Face's T5ForConditionalGeneration.
"""

from collections.abc import Iterator
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, embedding, linear, normalisation
from mltswitch.profile.layers import Layer

WIDTH: Final = 1024
BLOCKS: Final = 24
"""In the encoder, and as many in the decoder."""
HEADS: Final = 32
HEAD_WIDTH: Final = 128
FEED_FORWARD: Final = 16_384
VOCABULARY: Final = 32_128
"""32,000 word pieces and 100 sentinels, padded to a multiple of 128."""
POSITION_BUCKETS: Final = 32


def layers() -> Iterator[Layer]:
    """All layers in forward order."""
    yield embedding("shared", VOCABULARY, WIDTH)
    for stack, attentions in (
        ("encoder", ("SelfAttention",)),
        ("decoder", ("SelfAttention", "EncDecAttention")),
    ):
        for block in range(BLOCKS):
            yield from _block(f"{stack}.block.{block}", attentions, is_first=block == 0)
        yield normalisation(f"{stack}.final_layer_norm", WIDTH, bias=False)


def _block(name: str, attentions: tuple[str, ...], *, is_first: bool) -> Iterator[Layer]:
    for position, attention in enumerate(attentions):
        sublayer = f"{name}.layer.{position}"
        has_position_bias = is_first and attention == "SelfAttention"
        yield normalisation(f"{sublayer}.layer_norm", WIDTH, bias=False)
        yield from _attention(f"{sublayer}.{attention}", has_position_bias=has_position_bias)
    sublayer = f"{name}.layer.{len(attentions)}"
    yield normalisation(f"{sublayer}.layer_norm", WIDTH, bias=False)
    yield linear(f"{sublayer}.DenseReluDense.wi", WIDTH, FEED_FORWARD, bias=False)
    yield linear(f"{sublayer}.DenseReluDense.wo", FEED_FORWARD, WIDTH, bias=False)


def _attention(name: str, *, has_position_bias: bool) -> Iterator[Layer]:
    for part in ("q", "k", "v"):
        yield linear(f"{name}.{part}", WIDTH, HEADS * HEAD_WIDTH, bias=False)
    if has_position_bias:
        yield embedding(f"{name}.relative_attention_bias", POSITION_BUCKETS, HEADS)
    yield linear(f"{name}.o", HEADS * HEAD_WIDTH, WIDTH, bias=False)


ARCHITECTURE: Final = Architecture(
    name="t5-3b",
    description="Text to text, encoder and decoder",
    source=(
        "Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, "
        "2019 (arXiv:1910.10683)"
    ),
    parameter_convention=(
        "One embedding of 32,128 entries (padded vocabulary) for encoder, decoder and output, counted once, "
        "at shared in front; the paper rounds to 2.8 billion."
    ),
    derive=layers,
)
