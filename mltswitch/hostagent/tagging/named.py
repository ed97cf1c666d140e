"""Importance policies by the names that commands and settings use."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging.magnitude import ByMagnitude
from mltswitch.hostagent.tagging.policies import AllImportant, ByPosition, NoneImportant
from mltswitch.hostagent.values import shown

NamedPolicy = ByMagnitude | ByPosition | AllImportant | NoneImportant

POLICIES: Final[Mapping[str, type[NamedPolicy]]] = MappingProxyType(
    {"magnitude": ByMagnitude, "position": ByPosition, "all": AllImportant, "none": NoneImportant}
)
"""Each is made without arguments; the first is the default."""
DEFAULT_POLICY: Final = "magnitude"


def policy_named(name: str) -> NamedPolicy:
    """A policy as its name says, with its own defaults; raises UserInputError for names that are none."""
    policy = POLICIES.get(name) if isinstance(name, str) else None
    if policy is None:
        raise UserInputError(
            f"there is no importance policy {shown(name)}", where="importance", expected=", ".join(POLICIES)
        )
    return policy()
