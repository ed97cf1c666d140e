"""The bundled profiles, and the lookup of a profile by name or file."""

import os
from functools import cache
from pathlib import Path
from typing import Final

from mltswitch.documents import load_document
from mltswitch.errors import UserInputError, did_you_mean
from mltswitch.profile.architectures import ARCHITECTURES
from mltswitch.profile.default import default_sensitivity
from mltswitch.profile.document import PROFILE_SCHEMA, ModelProfile

_BY_NAME: Final = {architecture.name: architecture for architecture in ARCHITECTURES}


def bundled_names() -> tuple[str, ...]:
    """Names of the bundled profiles."""
    return tuple(_BY_NAME)


@cache
def bundled_profile(name: str) -> ModelProfile:
    """A bundled profile, derived from its architecture; raises UserInputError for an unknown name."""
    architecture = _BY_NAME.get(name)
    if architecture is None:
        raise UserInputError(
            f"unknown profile {name!r}",
            expected=f"one of {', '.join(_BY_NAME)}, or a file",
            hint=did_you_mean(name.lower(), _BY_NAME).removeprefix(", "),
        )
    layers = tuple(architecture.derive())
    return ModelProfile(
        schema=PROFILE_SCHEMA,
        name=architecture.name,
        description=architecture.description,
        source=architecture.source,
        parameter_convention=architecture.parameter_convention,
        layers=layers,
        sensitivity=default_sensitivity([layer.size_bytes for layer in layers], architecture.model_tolerance),
    )


def resolve_profile(name_or_path: str) -> ModelProfile:
    """A bundled profile by its name, or one from a file; a bundled name goes before a file of that name.

    Raises UserInputError where neither exists, or where the file is no profile.
    """
    if name_or_path in _BY_NAME:
        return bundled_profile(name_or_path)
    path = Path(name_or_path)
    is_meant_as_file = os.sep in name_or_path or path.suffix in {".yaml", ".yml", ".json"} or path.is_file()
    return load_document(path, ModelProfile) if is_meant_as_file else bundled_profile(name_or_path)
