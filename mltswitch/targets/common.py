"""What every target does in the same way."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.base import Quantised
from mltswitch.targets.state import SwitchState

_Value = TypeVar("_Value")


class LineError(Exception):
    """A line outside a target's grammar; `number` counts from 1."""

    def __init__(self, number: int, line: str, problem: str) -> None:
        super().__init__(f"{problem}: {line[:120]!r}")
        self.number = number


def with_item(values: tuple[_Value, ...], index: int, value: _Value) -> tuple[_Value, ...]:
    """The tuple with one item replaced."""
    return (*values[:index], value, *values[index + 1 :])


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


def expressible(quantised: Quantised, switch: str, check: Callable[[SwitchState], object]) -> Quantised:
    """The same, if the target's language has words for it; raises UnsupportedPlanError naming the switch."""
    try:
        check(quantised.state)
    except UnsupportedPlanError as error:
        error.where = f"{switch}: {error.where}" if error.where else switch
        raise
    return quantised
