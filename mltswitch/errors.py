"""The one exception tree: every error says what, where, what was expected and what to do.

The classes tell who can mend the error (user input, the machine, a device), and each has an exit code.
"""

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import ClassVar, Final, TypeVar

MOST_LISTED: Final = 20
"""The most errors of one or several documents that are listed."""


class MltswitchError(Exception):
    """Base of every error that mltswitch raises on purpose; never raised itself."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self, what: str, *, where: str = "", expected: str = "", hint: str = "", listed: Sequence[str] = ()
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        """Device, file or field, most general first: `fabric.yaml: classes.control.dscp`."""
        self.expected = expected
        self.hint = hint
        """What to do, as the beginning of a sentence; a command in it stands in backticks."""
        self.listed = tuple(listed)
        """Where a document has several errors: their number, and a line for each."""

    def __str__(self) -> str:
        """One line for the user."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.expected:
            text += f" (expected {self.expected})"
        if self.hint:
            text += f". {self.hint[0].upper()}{self.hint[1:]}"
        return printable(" ".join(text.split()))

    def lines(self) -> list[str]:
        """The lines of the message for the user: all the errors that it lists, else only its own."""
        return [printable(line) for line in self.listed] or [str(self)]


def printable(text: str) -> str:
    """The text with what is not printable escaped, line ends too: a device must not steer a terminal."""
    if text.isprintable():  # as nearly all is
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


class UserInputError(MltswitchError):
    """A file, an option or a value that the user gave cannot be used."""

    exit_code: ClassVar[int] = 2


class UnsupportedPlanError(MltswitchError):
    """A device cannot express the plan at all; names the device, the field and the limit."""

    exit_code: ClassVar[int] = 2


class MachineError(MltswitchError):
    """This machine lacks something: a privilege, a kernel feature, a program or an optional package."""

    exit_code: ClassVar[int] = 3


Result = TypeVar("Result")


def every(calls: Iterable[Callable[[], Result]]) -> list[Result]:
    """Make all calls and return their results; if any fail, raise one error that lists all of theirs."""
    results: list[Result] = []
    refused: list[UserInputError | UnsupportedPlanError] = []
    for call in calls:
        try:
            results.append(call())
        except (UserInputError, UnsupportedPlanError) as error:
            refused.append(error)
    refuse(refused)
    return results


def refuse(errors: Sequence[MltswitchError]) -> None:
    """Raise the first of these errors, which lists all of them; return where there are none.

    An error that many ports or hosts share is listed once, for the first of them, with their number.
    """
    if not errors:
        return
    alike: dict[str, list[MltswitchError]] = {}
    for each in errors:
        alike.setdefault(each.what, []).append(each)
    lines = [
        f"{each}{f' ({len(others)} more like it: {_others(each, others)})' if others else ''}"
        for each, *others in alike.values()
    ]
    more = [f"and {len(lines) - MOST_LISTED} more"] if len(lines) > MOST_LISTED else []
    errors[0].listed = (
        (f"{len(lines)} errors", *lines[:MOST_LISTED], *more) if len(lines) > 1 else tuple(lines)
    )
    raise errors[0]


def _others(first: MltswitchError, others: Iterable[MltswitchError]) -> str:
    file = "".join(first.where.partition(": ")[:2])
    return some(other.where.removeprefix(file) for other in others)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The text `, did you mean linux?` with the known word closest to a wrong one; empty: none is close."""
    close = get_close_matches(word, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""


def some(names: Iterable[str], most: int = 3) -> str:
    """The first few of several names as text, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"{', '.join(listed[:most])}{more}"


class DeviceError(MltswitchError):
    """A switch could not be reached, refused a line, or gave an answer that cannot be read."""

    exit_code: ClassVar[int] = 4


class PreflightError(DeviceError):
    """Foreign settings on a switch break the plan's promises: push refuses, and verify says so."""


class UnreachableError(DeviceError):
    """The network, or a device that is busy or restarts, broke a connection: a second try may succeed."""


class RefusedError(DeviceError):
    """A switch has expressly refused a line: the lines before it are in effect, and it is idle."""

    index: int = 0
    """Which of the lines that were to be sent, from 0."""
    answer: str = ""
    """What the switch answered to the refused line."""


class UncertainError(DeviceError):
    """A device may still be working on what was sent to it, so what it runs now may change by itself."""


class OccupiedError(DeviceError):
    """Somebody else works on the device, or has changed it meanwhile, so the change is not made."""


class VerificationError(MltswitchError):
    """What a device runs differs from the plan."""

    exit_code: ClassVar[int] = 5
