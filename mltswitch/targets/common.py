"""What several targets do in the same way: lines of a file, answers of a device, routes."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final, TypeVar

from mltswitch.errors import DeviceError
from mltswitch.plan import Plan, Switch
from mltswitch.targets.base import FileError, LineError, Quantised
from mltswitch.targets.state import RouteState

_Value = TypeVar("_Value")
_Item = TypeVar("_Item")
UNKNOWN: Final = "not a line that mltswitch writes"
NO_PORT: Final = re.compile("")
"""The port of a route on a device whose routes name the next hop alone."""
NO_NEXT_HOP: Final = IPv4Address(0)
"""Of a route that leads to no neighbour, such as one that drops."""
NULL_INTERFACE: Final = "Null0"
"""Where routes that discard lead, in whichever case an OS writes it."""
_SPECTRUM_BOX: Final = re.compile(r"M?SN([2-5][0-9]{3})(?![0-9])")
NOT_SAVED: Final = "what runs is not saved: a reboot brings something else; a push saves it"
"""A note, of any OS that can tell."""
Key = tuple[tuple[str, ...], str]
"""A line with the modes in which it stands, outermost first."""


def with_item(values: tuple[_Value, ...], index: int, value: _Value) -> tuple[_Value, ...]:
    """The tuple with one item replaced."""
    return (*values[:index], value, *values[index + 1 :])


@dataclass(frozen=True, slots=True)
class PortSetting:
    """A line that sets one field of a port's settings."""

    field: str
    value: Any

    def apply(self, port: Any) -> Any:
        """The port with this set."""
        return replace(port, **{self.field: self.value})

    def former(self, port: Any) -> "Iterator[PortSetting]":
        """What sets the same field to what the port has."""
        yield PortSetting(self.field, getattr(port, self.field))


@dataclass(frozen=True, slots=True)
class QueueSetting:
    """A line that sets one field of a queue's settings."""

    queue: int
    field: str
    value: Any

    def apply(self, port: Any) -> Any:
        """The port with this set."""
        queue = replace(port.queues[self.queue], **{self.field: self.value})
        return replace(port, queues=with_item(port.queues, self.queue, queue))

    def former(self, port: Any) -> "Iterator[QueueSetting]":
        """What sets the same field to what the port's queue has."""
        yield QueueSetting(self.queue, self.field, getattr(port.queues[self.queue], self.field))


def each_line(text: str, parse: Callable[[str], _Item | None]) -> Iterator[tuple[int, _Item]]:
    """Number and meaning of each line that has one; raises FileError after the last, of all ValueErrors."""
    errors: list[LineError] = []
    # Not splitlines: what is pasted into a command line ends a line at a line feed only.
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            meaning = parse(line)
        except ValueError as error:
            errors.append(LineError(number, line, str(error)))
            continue
        if meaning is not None:
            yield number, meaning
    if errors:
        raise FileError(errors)


def check_lines(found: Iterable[tuple[int, Key]], rendered: Iterable[tuple[int, Key]]) -> None:
    """Raise FileError for every line that is not rendered for the state, and every one that is missing."""
    needed = Counter(key for _, key in rendered)
    errors: list[LineError] = []
    for number, key in found:
        if not needed[key]:
            errors.append(LineError(number, key[1], "does not fit the other lines"))
        needed[key] -= 1
    for modes, text in sorted(+needed):
        errors.append(LineError(0, "", f"lacks the line {' / '.join((*modes, text))!r}"))
    if errors:
        raise FileError(errors)


@contextmanager
def known_form(query: str) -> Iterator[None]:
    """Raises DeviceError where what is done with an answer shows that it has another form."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DeviceError(
            f"the answer to {query!r} has another form than known ({type(error).__name__}: {error})"
        ) from None


def json_in(answer: str) -> Any:
    """The document in an answer; some command lines print words before and behind it. Raises ValueError."""
    begin = min((answer.index(bracket) for bracket in "[{" if bracket in answer), default=0)
    return json.JSONDecoder().raw_decode(answer, begin)[0]


def count_in(text: object) -> int | None:
    """A number with thousands commas; None where the device writes a dash or N/A instead, or nothing."""
    digits = str(text).replace(",", "")
    return int(digits) if digits.isdecimal() else None


def static_route(line: str, where: str, prefix: str, target: str, others: str) -> RouteState:
    """A route of a running configuration that names its next hop and no port.

    What stands behind the next hop, such as a distance, is the port; a word in the place of the next hop is
    the port of the next hop 0.0.0.0, unless it is null0 alone, which discards. Raises DeviceError.
    """
    try:
        network = IPv4Network(prefix, strict=False)
    except ValueError as error:
        raise DeviceError(f"cannot read {line!r}: {error}", where=where) from None
    words = others.split()
    try:
        next_hop = IPv4Address(target)
    except ValueError:
        next_hop, words = NO_NEXT_HOP, [target, *words]
    return as_discarding(RouteState(network, next_hop, " ".join(words)), NULL_INTERFACE)


def as_discarding(route: RouteState, word: str) -> RouteState:
    """A route without a next hop whose port is that word, as one that discards; any other as it is."""
    is_discarding = route.next_hop == NO_NEXT_HOP and route.port.lower() == word.lower()
    return route._replace(port="") if is_discarding else route


def spectrum_hardware(model: str) -> tuple[str, ...]:
    """Hardware of an NVIDIA model: MSN2700-CS2F, MSN2700, SN3700C.

    Onyx prints the part number, Cumulus Linux the product name (NVIDIA's manuals, `show inventory`, NVUE
    reference). Letters behind the number tell ports, cooling and rails of one box.
    """
    match = _SPECTRUM_BOX.match(model)
    return () if match is None else (f"sn{match[1]}",)


def without_route_ports(quantised: Quantised, _plan: Plan, _switch: Switch) -> Quantised:
    """The same for a device whose routes name the next hop alone."""
    routes = tuple(RouteState(route.prefix, route.next_hop, "") for route in quantised.state.routes)
    return replace(quantised, state=replace(quantised.state, routes=routes))
