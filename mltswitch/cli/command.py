"""Declares commands as functions.

A command is a function. Its parameters are its arguments and options, in the order of `--help`: each has
`option(...)`, `flag(...)` or `argument(...)` as its default. A parameter that is a dataclass stands
for all its fields: their options are the fields' defaults, or the parameter's default is a mapping of them.
What the function returns is printed, and where that is an `Answer`, the command has `--json`.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, Final, NamedTuple

import click

from mltswitch.cli.output import Answer, progress
from mltswitch.cli.variables import PREFIX, taken
from mltswitch.cli.verbose import verbose_option

AS_JSON: Final = "as_json"


class Declared(NamedTuple):
    """A declared option or argument, without its parameter's name."""

    kind: type[click.Parameter]
    flags: tuple[str, ...]
    settings: dict[str, Any]
    question: Any = None
    """The question to ask where the option is not given, for commands that ask; None: none is asked."""

    def named(self, name: str) -> click.Parameter:
        """The click parameter for this name; an option without flags gets its flag from the name."""
        flags = self.flags
        if self.kind is click.Option and not flags:
            flags = (f"--{name.replace('_', '-')}",)
        return self.kind([*flags, name], **self.settings)


def option(
    text: str | None, kind: Any = None, *flags: str, variable: str | None = None, **settings: Any
) -> Any:
    """An option of a command.

    Args:
        text: Its help.
        kind: Its type.
        flags: Its flags, where the parameter's name is not the only one.
        variable: The environment variable of `VARIABLES` that gives it where the command line does not.
        settings: Of click's option.
    """
    if variable is not None:
        settings |= {"envvar": f"{PREFIX}{variable}", "show_envvar": True}
    return Declared(click.Option, flags, {"help": text, "type": kind, **settings})


def flag(text: str, *flags: str, **settings: Any) -> Any:
    """Declare an option without a value."""
    return Declared(click.Option, flags, {"help": text, "is_flag": True, **settings})


def argument(metavar: str | None = None, kind: Any = None, **settings: Any) -> Any:
    """Declare an argument with its type and its name in the usage line."""
    return Declared(click.Argument, (), {"metavar": metavar, "type": kind, **settings})


JSON: Final[Any] = flag("Print one JSON document.", "--json")


def command(
    *examples: str, name: str | None = None, **settings: Any
) -> Callable[[Callable[..., Answer | int | None]], click.Command]:
    """Make a command of a function.

    Args:
        examples: Lines of its help.
        name: Of the command, where it is not the function's.
        settings: Of click's command.
    """

    def decorate(function: Callable[..., Answer | int | None]) -> click.Command:
        groups: dict[str, tuple[type[Any], Mapping[str, Declared]]] = {}
        declared: dict[str, Declared] = {}
        signature = inspect.signature(function)
        for each in signature.parameters.values():
            if is_dataclass(each.annotation) and isinstance(each.annotation, type):
                own: Any = {field.name: field.default for field in fields(each.annotation)}
                options: Mapping[str, Declared] = own if each.default is each.empty else each.default
                groups[each.name] = each.annotation, options
                declared |= options
            else:
                declared[each.name] = each.default
        takes_json = AS_JSON in declared
        if signature.return_annotation in {Answer, Answer | None} and not takes_json:
            declared[AS_JSON] = JSON

        @wraps(function)
        def call(**given: Any) -> int | None:
            as_json = given.get(AS_JSON, False) if takes_json else given.pop(AS_JSON, False)
            if told := taken():
                progress(told)
            for parameter, (group, options) in groups.items():
                given[parameter] = group(**{key: given.pop(key) for key in options})
            answer = function(**given)
            return answer.print(as_json=as_json) if isinstance(answer, Answer) else answer

        params = [*(each.named(key) for key, each in declared.items()), verbose_option()]
        make: Any = click.command(name, params=params, epilog=_epilog(examples), **settings)
        made: click.Command = make(call)
        return made

    return decorate


def group(name: str, text: str, *commands: click.Command, examples: tuple[str, ...]) -> click.Group:
    """Put commands together under one name."""
    return click.Group(name, commands=commands, help=text, epilog=_epilog(examples))


def _epilog(examples: tuple[str, ...]) -> str | None:
    if not examples:
        return None
    return f"\b\nExample{'s' * (len(examples) > 1)}:\n" + "\n".join(f"  {each}" for each in examples)
