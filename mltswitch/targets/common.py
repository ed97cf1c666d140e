"""What every target does in the same way."""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.base import Quantised
from mltswitch.targets.state import SwitchState
from mltswitch.targets.template import used_templates, using_templates
from mltswitch.targets.user_templates import UserTemplates

_Value = TypeVar("_Value")
_LINE: Final = re.compile(r"(?P<file>[^:]+):(?P<line>[1-9][0-9]*)(?::[0-9]+)?")
"""How an error names a line of a rendered file, some with a column."""


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
    """The rendered files, parsed again before they leave; raises UserInputError if they say anything else.

    What they are compared with is never a user's template; an error names the line of the one that caused it.
    """
    templates = used_templates()
    try:
        with using_templates(None):
            is_same = parse(files) == state
    except UserInputError as error:
        if templates is None:
            raise
        raise _of_template(error, files, templates) from None
    if not is_same:
        where = templates.used if templates is not None else ()
        raise UserInputError(
            "what is rendered does not say what the plan says", where=", ".join(where or files)
        )
    return files


def _of_template(error: UserInputError, files: Mapping[str, str], templates: UserTemplates) -> UserInputError:
    """The same error at the line of the template that wrote the line, or at the templates that were used."""
    place = _LINE.fullmatch(error.where)
    if place is not None and place["file"] in files:
        file, lines = place["file"], files[place["file"]].split("\n")
        number = min(int(place["line"]), len(lines))  # YAML may miss something behind the end
        origin = templates.origin(lines[number - 1])
        if origin is not None:
            return UserInputError(
                f"writes what {file} cannot have: {error.what}", where=origin, expected=error.expected
            )
    where = ", ".join(templates.used) or error.where
    return UserInputError(f"{error.where}: {error.what}", where=where, expected=error.expected)


def expressible(quantised: Quantised, switch: str, check: Callable[[SwitchState], object]) -> Quantised:
    """The same, if the target's language has words for it; raises UnsupportedPlanError naming the switch."""
    try:
        check(quantised.state)
    except UnsupportedPlanError as error:
        error.where = f"{switch}: {error.where}" if error.where else switch
        raise
    return quantised
