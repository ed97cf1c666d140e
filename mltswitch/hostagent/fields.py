"""Types of the fields of an agent's file, and some of its parts."""

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from mltswitch.hostagent.endpoint import host_name_problem, parse_endpoint, parse_place
from mltswitch.hostagent.spraying import FIRST_SOURCE_PORT, LARGEST_FIRST_SOURCE_PORT, MOST_PATHS
from mltswitch.hostagent.spraying.shares import Policy
from mltswitch.hostagent.tagging.policies import POLICIES
from mltswitch.hostagent.telemetry.trace import KINDS
from mltswitch.hostagent.transport.description import StopRule, transports
from mltswitch.units import parse_bps, parse_bytes
from mltswitch.wire import ETHERTYPE_IPV4, SourceRoute

SAFE_IMPORTANT_BOUND: Final = 0.01
"""Of the important packets, where a receive allows losses and says nothing of them."""
_BROADCAST: Final = IPv4Address("255.255.255.255")
_SHOWN: Final = 60
"""Characters of a value in an error."""


def _passes(check: Callable[[str], object]) -> AfterValidator:
    """The text stays as it is; the check raises ValueError."""

    def checked(text: str) -> str:
        check(text)
        return text

    return AfterValidator(checked)


def _one_of(kind: str, known: Callable[[], Iterable[str]]) -> AfterValidator:
    def check(name: str) -> None:
        if name not in known():
            raise ValueError(f"{name[:_SHOWN]!r} is no {kind}, write one of {', '.join(known())}")

    return _passes(check)


def _host_name(name: str) -> None:
    if problem := host_name_problem(name):
        raise ValueError(f"{name[:_SHOWN]!r} {problem}")


def _data_address(text: str) -> None:
    address = parse_endpoint(text if ":" not in text else f"[{text}]").ip
    if address.is_unspecified or address.is_multicast or address == _BROADCAST:
        raise ValueError(f"{text[:_SHOWN]!r} means several addresses or hosts; data has one address a path")


def _source_route(ports: tuple[int, ...]) -> tuple[int, ...]:
    return SourceRoute(ports, ETHERTYPE_IPV4).ports  # raises ValueError for one that no header holds


HostName = Annotated[str, _passes(_host_name)]
EndpointText = Annotated[str, _passes(parse_endpoint)]
PlaceText = Annotated[str, _passes(parse_place)]
AddressText = Annotated[str, _passes(_data_address)]
FileName = Annotated[str, Field(min_length=1, max_length=4096)]
"""A path, from the folder of the file that names it."""
RateBps = Annotated[int, BeforeValidator(parse_bps), Field(gt=0)]
SizeBytes = Annotated[int, BeforeValidator(parse_bytes)]
Share = Annotated[float, Field(ge=0, le=1)]
Flag = Annotated[bool, Field(strict=True)]
Number = Annotated[int, Field(strict=True)]
TransportName = Annotated[str, _one_of("transport", transports)]
EventName = Annotated[str, _one_of("event", KINDS.keys)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TraceSettings(_Part):
    """A trace that an agent writes without being asked by its program."""

    folder: FileName
    """It is there already; the trace in it is named after the agent: `NAME.jsonl`."""
    events: tuple[EventName, ...] = ()
    """Names of the events that are written; none: all, which makes small transfers dearer."""


class Spraying(_Part):
    """How a path is named on the wire, and how bursts are divided among paths."""

    mode: Literal["alias", "srv6", "entropy", "p4"] | None = None
    """None: the plan's, else `alias`. Where the switches choose, it is `alias` with one address."""
    policy: Policy = Policy.ROUND_ROBIN
    source_ports: Annotated[int, Field(ge=1, le=MOST_PATHS, strict=True)] | None = None
    """`entropy`: how many, each a path with a socket of its own; by default 16, or the plan's."""
    first_source_port: int = Field(default=FIRST_SOURCE_PORT, ge=1, le=LARGEST_FIRST_SOURCE_PORT, strict=True)
    sticky: Flag = False
    """`srv6`: a header for each socket instead of a route of the host for each address."""
    segments: tuple[tuple[IPv6Address, ...], ...] = Field(default=(), max_length=MOST_PATHS)
    """`srv6`: of each path, without the destination."""
    interface: Annotated[str, Field(pattern=r"^[^\s/]{1,15}$")] | None = None
    """`p4`: that frames leave from."""
    gateway: Annotated[str, Field(pattern=r"^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$")] | None = None
    """`p4`: MAC address that frames go to."""
    routes: dict[HostName, tuple[Annotated[tuple[Number, ...], AfterValidator(_source_route)], ...]] = {}
    """`p4`: for each path to a peer the egress ports of the switches; one route stands for every path."""

    @property
    def has_socket_per_path(self) -> bool:
        """Else one socket carries all paths."""
        return self.mode == "entropy" or (self.mode == "srv6" and self.sticky)

    @property
    def header_bytes(self) -> int:
        """What a packet is longer on its way than IP and UDP make it, on the longest path."""
        if self.mode == "srv6":
            return max((8 + 16 * (len(path) + 1) for path in self.segments), default=0)  # RFC 8754, section 2
        if self.mode == "p4":
            routes = (route for paths in self.routes.values() for route in paths)
            return max((SourceRoute(route, ETHERTYPE_IPV4).size_bytes for route in routes), default=0)
        return 0


class Defaults(_Part):
    """What a post leaves out."""

    deadline_seconds: float = Field(default=60, gt=0, le=1e6)
    loss_bound: Share = 0
    important_loss_bound: Share | None = None
    """None: 0.01, or the loss bound where that is less."""
    importance: Annotated[str, _one_of("policy", lambda: POLICIES)] = "magnitude"
    stop: StopRule = StopRule.PATIENT

    def important_bound(self, loss_bound: float) -> float:
        """Of a receive with this loss bound that names none for important packets."""
        safe = min(loss_bound, SAFE_IMPORTANT_BOUND)
        return safe if self.important_loss_bound is None else self.important_loss_bound
