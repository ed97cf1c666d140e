"""The default loss sensitivity: what the MLT paper (section 3.3) found, carried over to any model."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from mltswitch.profile.sensitivity import CurvePoint, LayerRangeCurve, Sensitivity

FRONT_LAYER_TOLERANCE: Final = 0.05
BACK_LAYER_TOLERANCE: Final = 0.003
EDGE_SHARE: Final = 0.2
"""Share of the layers that counts as front layers, and as back layers."""
UNIMPORTANT_TOLERANCE: Final = 0.20
IMPORTANT_TOLERANCE: Final = 0.004
UNIMPORTANT_SHARE: Final = 0.5

ASSUMED_MODEL_TOLERANCE: Final = 0.01
"""Loss ratio assumed to be tolerated by models that the paper did not measure; its table 1 spans 0.7 % to 3.3
%."""
EXTRA_ROUNDS_PER_LOSS: Final = 1.0
"""Slope of extra rounds over loss beyond the tolerance, assumed since the paper measured none: 1 % costs 1
%."""


def layer_tolerance(depth: float) -> float:
    """Loss ratio that a layer tolerates at `depth` (0 = first layer, 1 = last).

    Constant over the first and the last 20 %, geometric between them: the two figures differ by a factor
    of 17, so equal steps in depth change the tolerance by equal factors, and no layer stands at a cliff that
    the paper did not measure.
    """
    position = min(max((depth - EDGE_SHARE) / (1 - 2 * EDGE_SHARE), 0.0), 1.0)
    return float(FRONT_LAYER_TOLERANCE * (BACK_LAYER_TOLERANCE / FRONT_LAYER_TOLERANCE) ** position)


def default_sensitivity(
    layer_sizes_bytes: Sequence[int], model_tolerance: float | None = None
) -> Sensitivity:
    """The default loss sensitivity of a model with layers of these sizes, in forward order.

    A gradient tolerates its layer's tolerance times that of its importance over that of the model. Beyond it,
    each group of gradients costs the assumed slope times its share of the model's bytes, so that the same
    loss everywhere costs the same whatever number of layers the model is divided into.

    Args:
        layer_sizes_bytes: gradient bytes of each layer.
        model_tolerance: that of the whole model (table 1 of the paper); None where the paper has none.
    """
    total_bytes = sum(layer_sizes_bytes)
    of_the_model = ASSUMED_MODEL_TOLERANCE if model_tolerance is None else model_tolerance

    def points(of_the_gradients: float, share: float) -> tuple[CurvePoint, ...]:
        """Zero up to the tolerance, then the slope; a tolerance of 1 or more never costs anything."""
        tolerance = _six_digits(min(of_the_gradients / of_the_model, 1.0))
        end = (1.0, EXTRA_ROUNDS_PER_LOSS * share * (1.0 - tolerance))
        return ((0.0, 0.0), end) if tolerance in (0.0, 1.0) else ((0.0, 0.0), (tolerance, 0.0), end)

    curves = []
    layers = range(len(layer_sizes_bytes))
    for tolerance, group in groupby(layers, lambda layer: layer_tolerance((layer + 0.5) / len(layers))):
        members = list(group)
        byte_share = sum(layer_sizes_bytes[layer] for layer in members) / total_bytes
        curves.append(
            LayerRangeCurve(
                first_layer=members[0],
                last_layer=members[-1],
                unimportant=points(tolerance * UNIMPORTANT_TOLERANCE, byte_share * UNIMPORTANT_SHARE),
                important=points(tolerance * IMPORTANT_TOLERANCE, byte_share * (1 - UNIMPORTANT_SHARE)),
            )
        )
    return Sensitivity(
        is_default=True,
        provenance=_provenance(model_tolerance),
        extra_rounds_per_loss=EXTRA_ROUNDS_PER_LOSS,
        unimportant_share=UNIMPORTANT_SHARE,
        curves=tuple(curves),
    )


def _six_digits(value: float) -> float:
    """More than was measured, and the same on machines whose power function differs in the last bit."""
    return float(f"{value:.6g}")


def _provenance(model_tolerance: float | None) -> str:
    if model_tolerance is None:
        model = f"{ASSUMED_MODEL_TOLERANCE:.1%} for the whole model (an assumption: table 1 does not list it)"
    else:
        model = f"{model_tolerance:.1%} for the whole model (table 1)"
    return (
        "Default, not a measurement of this model: tolerances from the MLT paper, section 3.3, measured "
        f"there with ResNet-50 on CIFAR-100: {FRONT_LAYER_TOLERANCE:.0%} in front layers, "
        f"{BACK_LAYER_TOLERANCE:.1%} in back layers, geometric between them; {UNIMPORTANT_TOLERANCE:.0%} of "
        f"small gradients, {IMPORTANT_TOLERANCE:.1%} of large ones; {model}. The cost beyond the tolerance, "
        f"extra_rounds_per_loss = {EXTRA_ROUNDS_PER_LOSS:g}, is an assumption; the paper gives none."
    )
