"""Model profiles: the layers of a model in forward order, and what losing their gradients costs."""

from mltswitch.profile.curves import Curve
from mltswitch.profile.default import default_sensitivity
from mltswitch.profile.document import ModelProfile, profile_sha256, queue_curves
from mltswitch.profile.from_torch import (
    call_with,
    import_torch,
    made_by,
    owners_of,
    profile_from_torch,
    profile_of_module,
    user_code,
)
from mltswitch.profile.layers import Layer, Tensor
from mltswitch.profile.library import bundled_names, bundled_profile, resolve_profile
from mltswitch.profile.sensitivity import LayerRangeCurve, Sensitivity

__all__ = [
    "Curve",
    "Layer",
    "LayerRangeCurve",
    "ModelProfile",
    "Sensitivity",
    "Tensor",
    "bundled_names",
    "bundled_profile",
    "call_with",
    "default_sensitivity",
    "import_torch",
    "made_by",
    "owners_of",
    "profile_from_torch",
    "profile_of_module",
    "profile_sha256",
    "queue_curves",
    "resolve_profile",
    "user_code",
]
