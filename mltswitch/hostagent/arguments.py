"""What callers hand over, checked before anything is posted: the engine trusts it."""

import threading
from collections.abc import Callable, Iterable
from math import isnan
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.tagging import checked_dscp, policy_named
from mltswitch.hostagent.transport.interfaces import ImportancePolicy, TransferKey
from mltswitch.hostagent.values import real, shown, whole_number
from mltswitch.hostagent.words import encodable
from mltswitch.wire import Dscp

_LARGEST_NUMBER: Final = (1 << 32) - 1
MAXIMUM_LAYER: Final = (1 << 16) - 1
LONGEST_WAIT_SECONDS: Final = threading.TIMEOUT_MAX / 2
"""146 years: half of what a lock can be waited for, because conditions add the time of day to it."""
LONGEST_NAME: Final = 255
"""Letters of an agent's name, as a HELLO may have them."""


def share(name: str, value: object) -> float:
    """0 or more, below 1; raises UserInputError."""
    number = real(value)
    if number is None or not 0 <= number < 1:
        raise UserInputError(f"{shown(value)} is no bound of loss", where=name, expected="0 or more, below 1")
    return number


def seconds(name: str, value: object) -> float:
    """Above 0; raises UserInputError."""
    number = real(value)
    if number is None or not 0 < number < 1e6:
        raise UserInputError(f"{shown(value)} is no time", where=name, expected="seconds, above 0, below 10⁶")
    return number


def wait_limit(name: str, value: object) -> float:
    """How long to wait, in seconds: 0 for what is below, and never longer than any lock can be waited for.

    Raises UserInputError for what is no number.
    """
    number = real(value)
    if number is None or isnan(number):
        raise UserInputError(f"{shown(value)} is no time", where=name, expected="seconds")
    return min(max(number, 0.0), LONGEST_WAIT_SECONDS)


def peer_name(value: object) -> str:
    """One that a HELLO can say; raises UserInputError."""
    return agent_name("peer", value)


def agent_name(where: str, value: object) -> str:
    """The same of any agent."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or encodable(value) != value:
        raise UserInputError(
            f"{shown(value)} is no name", where=where, expected=f"text, 1 to {LONGEST_NAME} letters"
        )
    return str.__str__(value)


def peer_names(value: object) -> list[str]:
    """Several; raises UserInputError, for one name in the place of several, too."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UserInputError(f"{shown(value)} is no list of names", where="names", expected="names of peers")
    return [peer_name(each) for each in value]


def text_given(name: str, value: object) -> str:
    """What can be said to a peer: half a character becomes a question mark; raises UserInputError."""
    if not isinstance(value, str):
        raise UserInputError(f"{shown(value)} is no text", where=name, expected="text")
    return encodable(value)


def endpoint_given(name: str, value: object) -> Endpoint:
    """Raises UserInputError for what is none; whether it is an address shows when it is used."""
    if not isinstance(value, Endpoint) or not isinstance(value.address, str):
        raise UserInputError(
            f"{shown(value)} is no place", where=name, expected="an Endpoint: an IP address and a port"
        )
    whole_number(f"port of {name}", value.port, 0, 65535)
    return value


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
        raise UserInputError(
            f"{shown(value)} is no policy", where="policy", expected="a name, or what has `mark`"
        )
    return value  # type: ignore[return-value]  # it has what a policy has


def dscp_of_chunk(dscp: Dscp | Callable[[], Dscp] | None) -> Callable[[], Dscp]:
    """To be asked for every chunk; raises UserInputError."""
    if callable(dscp):
        return code_point_asked(dscp)
    if dscp is None:
        raise UserInputError(
            "the tensor has no code point", where="dscp", hint="give one, or set AgentSettings.two_queues"
        )
    number = code_point(dscp)
    return lambda: number


def deadline_ns(posted_ns: int, wait_seconds: float) -> int:
    """So long after the post; raises UserInputError."""
    return posted_ns + int(seconds("deadline_seconds", wait_seconds) * 1e9)
