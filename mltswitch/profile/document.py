"""The profile document: a model's layers and its sensitivity to lost gradients."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mltswitch.documents import sha256
from mltswitch.profile.curves import Curve, weighted_sum
from mltswitch.profile.layers import MAXIMUM_LAYERS, Identifier, Layer
from mltswitch.profile.sensitivity import Sensitivity

PROFILE_SCHEMA: Final = "mltswitch/profile/v1"

Text = Annotated[str, Field(max_length=4000)]


class ModelProfile(BaseModel):
    """Layers of a model in forward order, and what losing their gradients costs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["mltswitch/profile/v1"] = Field(alias="schema")
    name: Identifier
    description: Text = ""
    source: Text = ""
    """Paper or code that defines the architecture."""
    parameter_convention: Text = ""
    """What `total_parameters` counts, where publications differ."""
    layers: tuple[Layer, ...] = Field(min_length=1, max_length=MAXIMUM_LAYERS)
    """The model's layers in forward order; parameters used in several places are listed once, at the
    first."""
    sensitivity: Sensitivity

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _refuse_twice("layer", (layer.name for layer in self.layers))
        _refuse_twice("tensor", (tensor.name for layer in self.layers for tensor in layer.tensors))
        covered = self.sensitivity.curves[-1].last_layer + 1
        if covered != len(self.layers):
            raise ValueError(f"sensitivity.curves cover {covered} layers, the model has {len(self.layers)}")
        return self

    @property
    def total_parameters(self) -> int:
        """Number of parameters of all layers."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def total_bytes(self) -> int:
        """Gradient bytes of one round."""
        return sum(layer.size_bytes for layer in self.layers)


def _refuse_twice(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{kind} {name!r} stands twice in layers")
        seen.add(name)


def profile_sha256(profile: ModelProfile) -> str:
    """Hash of the content, independent of how a file is formatted."""
    return sha256(profile)


def queue_curves(profile: ModelProfile, first_layer: int, last_layer: int) -> tuple[Curve, Curve]:
    """(unimportant, important) curves of extra rounds when all these layers' gradients have the same loss
    ratio.

    They are sums over the layers, each weighted by its share of the bytes of its curve's range.
    Raises ValueError where the layers, 0-based with both ends included, are none of the profile's.
    """
    if not 0 <= first_layer <= last_layer < len(profile.layers):
        raise ValueError(f"layers {first_layer} to {last_layer} are not within 0-{len(profile.layers) - 1}")
    sizes_bytes = [layer.size_bytes for layer in profile.layers]
    unimportant, important = [], []
    for entry in profile.sensitivity.curves:
        first, last = max(entry.first_layer, first_layer), min(entry.last_layer, last_layer)
        if first > last:
            continue
        range_bytes = sum(sizes_bytes[entry.first_layer : entry.last_layer + 1])
        share = sum(sizes_bytes[first : last + 1]) / range_bytes
        unimportant.append((share, entry.curve(important=False)))
        important.append((share, entry.curve(important=True)))
    return weighted_sum(unimportant), weighted_sum(important)
