"""What callers hand over, checked before anything is posted: the engine trusts it."""

from collections.abc import Callable
from operator import index
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging import checked_dscp, policy_named
from mltswitch.hostagent.transport.interfaces import ImportancePolicy, TransferKey
from mltswitch.wire import Dscp

_LARGEST_NUMBER: Final = (1 << 32) - 1
_LARGEST_LAYER: Final = (1 << 16) - 1


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
    if isinstance(value, bool | str) or not _is_number(value) or not 0 <= float(value) < 1:  # type: ignore[arg-type]
        raise UserInputError(f"{value!r} is no bound of loss", where=name, expected="0 or more, below 1")
    return float(value)  # type: ignore[arg-type]  # it is a number


def seconds(name: str, value: object) -> float:
    """Above 0; raises UserInputError."""
    if isinstance(value, bool | str) or not _is_number(value) or not 0 < float(value) < 1e6:  # type: ignore[arg-type]
        raise UserInputError(f"{value!r} is no time", where=name, expected="seconds, above 0, below 10⁶")
    return float(value)  # type: ignore[arg-type]  # it is a number


def transfer_key(tensor: object, round_number: object) -> TransferKey:
    """As the headers carry it; raises UserInputError."""
    return TransferKey(
        whole_number("tensor", tensor, 0, _LARGEST_NUMBER),
        whole_number("round_number", round_number, 0, _LARGEST_NUMBER),
    )


def layer_number(value: object) -> int:
    """As the headers carry it; raises UserInputError."""
    return whole_number("layer", value, 0, _LARGEST_LAYER)


def code_point(value: object) -> Dscp:
    """One that a tensor may travel with; raises UserInputError."""
    return checked_dscp(whole_number("dscp", value, 0, 63))


def code_point_asked(ask: Callable[[], object]) -> Callable[[], Dscp]:
    """The same of what a caller's function says whenever it is asked."""
    return lambda: code_point(ask())


def policy_given(value: object) -> ImportancePolicy:
    """A policy, or one of ours by its name; raises UserInputError."""
    if isinstance(value, str):
        return policy_named(value)
    if not callable(getattr(value, "mark", None)):
        raise UserInputError(f"{value!r} is no policy", where="policy", expected="a name, or what has `mark`")
    return value  # type: ignore[return-value]  # it has what a policy has


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]  # the question is whether it can
    except (TypeError, ValueError):
        return False
    return True
