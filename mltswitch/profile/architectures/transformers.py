"""Transformers: BERT-base, GPT-2 small and T5-3B. Names follow Hugging Face's models."""

from collections.abc import Iterator
from typing import Final

from mltswitch.profile.architectures.modules import Architecture, embedding, linear, normalisation, projection
from mltswitch.profile.layers import Layer

BERT_WIDTH: Final = 768
BERT_BLOCKS: Final = 12
BERT_FEED_FORWARD: Final = 4 * BERT_WIDTH
BERT_VOCABULARY: Final = 30_522
BERT_POSITIONS: Final = 512
BERT_SEGMENTS: Final = 2


def bert_base() -> Iterator[Layer]:
    """BERT-base, uncased (Devlin et al., "BERT", 2018, section 3): encoder and pooler.

    Order: within a block query, key and value run one after another; names follow BertModel.
    """
    yield embedding("embeddings.word_embeddings", BERT_VOCABULARY, BERT_WIDTH)
    yield embedding("embeddings.token_type_embeddings", BERT_SEGMENTS, BERT_WIDTH)
    yield embedding("embeddings.position_embeddings", BERT_POSITIONS, BERT_WIDTH)
    yield normalisation("embeddings.LayerNorm", BERT_WIDTH)
    for block in range(BERT_BLOCKS):
        yield from _bert_block(f"encoder.layer.{block}")
    yield linear("pooler.dense", BERT_WIDTH, BERT_WIDTH)


def _bert_block(name: str) -> Iterator[Layer]:
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        yield linear(f"{name}.attention.{part}", BERT_WIDTH, BERT_WIDTH)
    yield normalisation(f"{name}.attention.output.LayerNorm", BERT_WIDTH)
    yield linear(f"{name}.intermediate.dense", BERT_WIDTH, BERT_FEED_FORWARD)
    yield linear(f"{name}.output.dense", BERT_FEED_FORWARD, BERT_WIDTH)
    yield normalisation(f"{name}.output.LayerNorm", BERT_WIDTH)


BERT_BASE: Final = Architecture(
    name="bert-base",
    description="Text encoder, English, uncased vocabulary",
    source="Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, 2018 (arXiv:1810.04805)",
    parameter_convention=(
        "Embeddings, encoder and pooler, without the heads for pre-training (masked words, next sentence); "
        "the paper rounds to 110 million."
    ),
    derive=bert_base,
)

GPT2_WIDTH: Final = 768
GPT2_BLOCKS: Final = 12
GPT2_VOCABULARY: Final = 50_257
GPT2_POSITIONS: Final = 1024


def gpt2_small() -> Iterator[Layer]:
    """GPT-2 small (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2).

    The output layer is the token embedding again, so it stands once, as `transformer.wte`, at the front: its
    gradient is complete only when the backward pass arrives there. Names follow GPT2LMHeadModel.
    """
    yield embedding("transformer.wte", GPT2_VOCABULARY, GPT2_WIDTH)
    yield embedding("transformer.wpe", GPT2_POSITIONS, GPT2_WIDTH)
    for block in range(GPT2_BLOCKS):
        yield from _gpt2_block(f"transformer.h.{block}")
    yield normalisation("transformer.ln_f", GPT2_WIDTH)


def _gpt2_block(name: str) -> Iterator[Layer]:
    yield normalisation(f"{name}.ln_1", GPT2_WIDTH)
    yield projection(f"{name}.attn.c_attn", GPT2_WIDTH, 3 * GPT2_WIDTH)  # query, key and value in one
    yield projection(f"{name}.attn.c_proj", GPT2_WIDTH, GPT2_WIDTH)
    yield normalisation(f"{name}.ln_2", GPT2_WIDTH)
    yield projection(f"{name}.mlp.c_fc", GPT2_WIDTH, 4 * GPT2_WIDTH)
    yield projection(f"{name}.mlp.c_proj", 4 * GPT2_WIDTH, GPT2_WIDTH)


GPT2_SMALL: Final = Architecture(
    name="gpt2-small",
    description="Text generation, 1,024 tokens of context",
    source="Radford et al., Language Models are Unsupervised Multitask Learners, 2019",
    parameter_convention=(
        "The output layer shares the token embedding and counts once, at transformer.wte in front; the paper "
        "prints 117 million, its authors later corrected the figure to 124 million."
    ),
    derive=gpt2_small,
)

T5_WIDTH: Final = 1024
T5_BLOCKS: Final = 24
"""Number of blocks in T5-3B's encoder, and as many in its decoder."""
T5_HEADS: Final = 32
T5_HEAD_WIDTH: Final = 128
T5_FEED_FORWARD: Final = 16_384
T5_VOCABULARY: Final = 32_128
"""Size of T5's vocabulary: 32,000 word pieces and 100 sentinels, padded to a multiple of 128."""
T5_POSITION_BUCKETS: Final = 32


def t5_3b() -> Iterator[Layer]:
    """T5-3B (Raffel et al., "Exploring the Limits of Transfer Learning", 2019, section 3.7).

    One embedding serves the encoder, the decoder and the output; it stands once, as `shared`, at the front.
    Only the first block of each stack has a relative position bias, read after query, key and value. The
    decoder runs after the encoder. Names follow T5ForConditionalGeneration.
    """
    yield embedding("shared", T5_VOCABULARY, T5_WIDTH)
    for stack, attentions in (
        ("encoder", ("SelfAttention",)),
        ("decoder", ("SelfAttention", "EncDecAttention")),
    ):
        for block in range(T5_BLOCKS):
            yield from _t5_block(f"{stack}.block.{block}", attentions, is_first=block == 0)
        yield normalisation(f"{stack}.final_layer_norm", T5_WIDTH, bias=False)


def _t5_block(name: str, attentions: tuple[str, ...], *, is_first: bool) -> Iterator[Layer]:
    for position, attention in enumerate(attentions):
        sublayer = f"{name}.layer.{position}"
        has_position_bias = is_first and attention == "SelfAttention"
        yield normalisation(f"{sublayer}.layer_norm", T5_WIDTH, bias=False)
        yield from _t5_attention(f"{sublayer}.{attention}", has_position_bias=has_position_bias)
    sublayer = f"{name}.layer.{len(attentions)}"
    yield normalisation(f"{sublayer}.layer_norm", T5_WIDTH, bias=False)
    yield linear(f"{sublayer}.DenseReluDense.wi", T5_WIDTH, T5_FEED_FORWARD, bias=False)
    yield linear(f"{sublayer}.DenseReluDense.wo", T5_FEED_FORWARD, T5_WIDTH, bias=False)


def _t5_attention(name: str, *, has_position_bias: bool) -> Iterator[Layer]:
    for part in ("q", "k", "v"):
        yield linear(f"{name}.{part}", T5_WIDTH, T5_HEADS * T5_HEAD_WIDTH, bias=False)
    if has_position_bias:
        yield embedding(f"{name}.relative_attention_bias", T5_POSITION_BUCKETS, T5_HEADS)
    yield linear(f"{name}.o", T5_HEADS * T5_HEAD_WIDTH, T5_WIDTH, bias=False)


T5_3B: Final = Architecture(
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
    derive=t5_3b,
)
