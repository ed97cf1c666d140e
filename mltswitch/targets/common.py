"""What every target does in the same way."""

from collections.abc import Callable, Mapping

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UserInputError
from mltswitch.targets.state import SwitchState


def lookup(models: Mapping[str, Capabilities], name: str, platform: str) -> Capabilities:
    """Capabilities of a hardware model; raises UserInputError listing the models."""
    try:
        return models[name]
    except KeyError:
        raise UserInputError(
            f"unknown hardware {name!r} for platform {platform}", expected=f"one of {', '.join(models)}"
        ) from None


def checked_render(
    files: dict[str, str], parse: Callable[[Mapping[str, str]], SwitchState], state: SwitchState
) -> dict[str, str]:
    """The rendered files, parsed again before they leave; raises UserInputError if they say anything else."""
    if parse(files) != state:
        raise UserInputError("what is rendered does not say what the plan says", where=", ".join(files))
    return files
