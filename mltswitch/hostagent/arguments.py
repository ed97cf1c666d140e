"""What callers hand over, checked before anything is posted: the engine trusts it."""

from collections.abc import Callable
from operator import index
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging import checked_dscp, policy_named
from mltswitch.hostagent.transport.interfaces import ImportancePolicy, TransferKey
from mltswitch.wire import Dscp

_LARGEST_NUMBER: Final = (1 << 32) - 1
MAXIMUM_LAYER: Final = (1 << 16) - 1


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """Any integer type's; raises UserInputError."""
    expected = f"a whole number, {least} to {most}"
    try:
        number = index(value)  # type: ignore[arg-type]  # what is none says so itself
    except TypeError:
        raise UserInputError(f"{value!r} is no number", where=name, expected=expected) from None
    if not least <= number <= most:
        raise UserInputError(f"{number} is out of range", where=name, expected=expected)
    return number


def share(name: str, value: object) -> float:
    """0 or more, below 1; raises UserInputError."""
    number = _number(value)
    if number is None or not 0 <= number < 1:
        raise UserInputError(f"{value!r} is no bound of loss", where=name, expected="0 or more, below 1")
    return number


def seconds(name: str, value: object) -> float:
    """Above 0; raises UserInputError."""
    number = _number(value)
    if number is None or not 0 < number < 1e6:
        raise UserInputError(f"{value!r} is no time", where=name, expected="seconds, above 0, below 10⁶")
    return number


def transfer_key(tensor: object, round_number: object) -> TransferKey:
    """As the headers carry it; raises UserInputError."""
    return TransferKey(
        whole_number("tensor", tensor, 0, _LARGEST_NUMBER),
        whole_number("round_number", round_number, 0, _LARGEST_NUMBER),
    )


def layer_number(value: object) -> int:
    """As the headers carry it; raises UserInputError."""
    return whole_number("layer", value, 0, MAXIMUM_LAYER)


def code_point(value: object) -> Dscp:
    """One that a tensor may travel with; raises UserInputError."""
    return checked_dscp(whole_number("dscp", value, 0, 63))


def code_point_asked(ask: Callable[[], object]) -> Callable[[], Dscp]:
    """What a caller's function says when it is asked, as a number of Python's; the sender checks which."""
    return lambda: whole_number("dscp", ask(), 0, 63)


def policy_given(value: object) -> ImportancePolicy:
    """A policy, or one of ours by its name; raises UserInputError."""
    if isinstance(value, str):
        return policy_named(value)
    if not callable(getattr(value, "mark", None)):
        raise UserInputError(f"{value!r} is no policy", where="policy", expected="a name, or what has `mark`")
    return value  # type: ignore[return-value]  # it has what a policy has


def _number(value: object) -> float | None:
    """None for what is none: text and truth values, too, although `float` takes them."""
    if isinstance(value, bool | str | bytes):
        return None
    try:
        return float(value)  # type: ignore[arg-type]  # the question is whether it can
    except (TypeError, ValueError):
        return None
