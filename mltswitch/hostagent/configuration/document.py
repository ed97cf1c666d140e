"""The agent's configuration file as it stands on the disk: what may be written there, and is checked."""

from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mltswitch.hostagent.configuration.places import parse_endpoint, parse_place
from mltswitch.hostagent.control.identity import host_name_problem
from mltswitch.hostagent.spraying.settings import Policy
from mltswitch.hostagent.tcp.settings import MAXIMUM_STREAMS
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_SEGMENTS
from mltswitch.hostagent.transport.hello import MAXIMUM_PATHS
from mltswitch.hostagent.transport.settings import Transport
from mltswitch.units import parse_bps, parse_bytes
from mltswitch.wire import AGENT_PORT, CS6, CS7

AGENT_SCHEMA: Literal["mltswitch/agent/v1"] = "mltswitch/agent/v1"
MAXIMUM_MTU_BYTES: Final = 65_536
"""Of the loopback interface; no cable carries more."""
MAXIMUM_PEERS: Final = 1024
_SHOWN_CHARACTERS: Final = 60


def _endpoint_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"is no address, write for example 10.10.0.1:{AGENT_PORT}")  # noqa: TRY004  (pydantic reads ValueError)
    parse_endpoint(value)
    return value


def _place_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"is no address or name, write for example host3:{AGENT_PORT}")  # noqa: TRY004  (as above)
    parse_place(value)
    return value


def _address_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("is no IP address, write for example 10.10.0.1")  # noqa: TRY004  (as above)
    try:
        ip_address(value)
    except ValueError:
        raise ValueError(
            f"{value[:_SHOWN_CHARACTERS]!r} is no IP address; data has addresses, names are looked up "
            "for the control channels of peers alone"
        ) from None
    return value


def _checked_name(name: str) -> str:
    problem = host_name_problem(name)
    if problem:
        raise ValueError(f"{name[:_SHOWN_CHARACTERS]!r} {problem}")
    return name


def _tensor_dscp(number: int) -> int:
    if number in {CS6, CS7}:
        raise ValueError(f"{number} belongs to routing protocols (RFC 4594)")
    return number


HostName = Annotated[str, AfterValidator(_checked_name)]
EndpointText = Annotated[str, BeforeValidator(_endpoint_text)]
PlaceText = Annotated[str, BeforeValidator(_place_text)]
AddressText = Annotated[str, BeforeValidator(_address_text)]
FileName = Annotated[str, Field(min_length=1, max_length=4096)]
"""A path, from the folder of the file that names it."""
RateBps = Annotated[int, BeforeValidator(parse_bps), Field(gt=0)]
SizeBytes = Annotated[int, BeforeValidator(parse_bytes)]
TensorDscp = Annotated[int, Field(ge=0, le=63, strict=True), AfterValidator(_tensor_dscp)]
Port = Annotated[int, Field(ge=0, lt=1 << 16, strict=True)]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListedClasses(_Document):
    """The code points that a plan would give."""

    control_dscp: TensorDscp
    """Of the control channel and of acknowledgements."""
    gradient_dscp: tuple[TensorDscp, ...] = Field(min_length=1, max_length=62)
    """Of the classes gradient-0, gradient-1, …: front layers first."""
    layers: int | None = Field(default=None, ge=1, le=1_000_000, strict=True)
    """Of the model: layer i of L is carried by class i · P // L of P. Needed for more than one class."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        numbers = (self.control_dscp, *self.gradient_dscp)
        if len(set(numbers)) < len(numbers) and set(numbers) != {0}:
            raise ValueError("a code point stands for two classes")
        return self


class SprayingDocument(_Document):
    """How bursts are divided among paths, and what a plan leaves open about them."""

    policy: Policy = Policy.ROUND_ROBIN
    source_ports: int | None = Field(default=None, ge=1, le=64, strict=True)
    """Mode `entropy`: how many; by default 16, or 4 for each spine where that is more."""
    first_source_port: int | None = Field(default=None, ge=1, lt=1 << 16, strict=True)
    """Mode `entropy`."""
    sticky: bool = Field(default=False, strict=True)
    """Mode `srv6`: a header for each socket instead of a route for each address."""


class TcpDocument(_Document):
    """Of the transport `tcp`."""

    streams: int = Field(default=1, ge=1, le=MAXIMUM_STREAMS, strict=True)
    """TCP connections to each peer."""
    congestion_control: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,15}$")] | None = None
    """By the kernel's name, `bbr` say."""


class AgentDocument(_Document):
    """One host's agent. With a plan most fields are the plan's; what is given here goes before it."""

    schema_: Literal["mltswitch/agent/v1"] = Field(default=AGENT_SCHEMA, alias="schema")
    name: HostName | None = None
    """This host's, in the plan and to its peers; by default the one of its certificate."""
    plan: FileName | None = None
    profile: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """The model profile that the plan was made for, so that layers and tensors have names."""
    keys: FileName | None = None
    """Folder with this host's keys, from `mltswitch agent keys`. Without keys agents talk over loopback
    alone."""
    plaintext: bool = Field(default=False, strict=True)
    """No keys, and yet beyond loopback: on networks that are yours alone."""
    listen: EndpointText | None = None
    """Where peers reach the control channel; by default this host's address in the plan."""
    addresses: tuple[AddressText, ...] | None = Field(default=None, min_length=1, max_length=MAXIMUM_PATHS)
    """Of the data, one a path; by default the plan's paths."""
    data_port: Port | None = None
    """UDP; 0: any free one, which peers are told."""
    peers: dict[HostName, PlaceText] = Field(default={}, max_length=MAXIMUM_PEERS)
    """Where others listen, by IP address or by name; by default every host of the plan, at its address."""
    expected_peers: int = Field(default=1, ge=1, le=MAXIMUM_PEERS, strict=True)
    """Who may send at the same time: each gets its part of the receive buffer."""
    line_rate_bps: RateBps | None = Field(default=None, alias="line_rate")
    """Of this host's link."""
    queue_bytes: SizeBytes | None = Field(default=None, alias="queue", ge=0)
    """Where the switch begins to drop what is unimportant; 0: not known, round trips slow nobody down."""
    base_round_trip_seconds: float | None = Field(default=None, gt=0, le=10, allow_inf_nan=False)
    """Of an idle network; a longer one is learned."""
    mtu_bytes: int | None = Field(default=None, ge=576, le=MAXIMUM_MTU_BYTES, strict=True)
    authenticate: bool = Field(default=False, strict=True)
    """A tag on every datagram."""
    burst_packets: int | None = Field(default=None, ge=1, le=UDP_MAXIMUM_SEGMENTS, strict=True)
    """n, packets with one path and one DSCP/ECN byte; by default the plan's."""
    total_rate_bps: RateBps | None = Field(default=None, alias="total_rate")
    """For all peers together; without, each has its own rate alone."""
    transport: Transport = Transport.MLT
    """How tensors cross; both ends say the same."""
    tcp: TcpDocument = TcpDocument()
    spraying: SprayingDocument = SprayingDocument()
    classes: ListedClasses | None = None
    """Where no plan says it."""
    two_queues: int | None = Field(default=None, ge=1, le=65_536, strict=True)
    """Two classes stand for many priorities: so many foremost unfinished layers use the first one."""
    buffer_bytes: SizeBytes | None = Field(default=None, alias="buffer", ge=65_536, lt=1 << 31)
    """Of each data socket, in each direction, as far as the kernel grants it."""
    catch_reuse: bool = Field(default=False, strict=True)
    """Find out whether a tensor changed while it was being sent; reads it twice."""

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.keys is not None and self.plaintext:
            raise ValueError("keys and plaintext: true exclude each other")
        if self.profile is not None and self.plan is None:
            raise ValueError("profile names the layers of a plan, and there is no plan")
        if self.plan is not None:
            given = [
                name
                for name, value in (
                    ("line_rate", self.line_rate_bps),
                    ("queue", self.queue_bytes),
                    ("classes", self.classes),
                )
                if value is not None
            ]
            if given:
                raise ValueError(f"{given[0]} is the plan's; leave out one of them")
        if self.addresses and len({ip_address(address).version for address in self.addresses}) > 1:
            raise ValueError("addresses are all IPv4 or all IPv6")
        return self


OF_ONE_TRANSPORT: Final = {
    Transport.TCP: ("tcp",),
    Transport.MLT: (
        "spraying",
        "burst_packets",
        "total_rate_bps",
        "buffer_bytes",
        "expected_peers",
        "base_round_trip_seconds",
    ),
}
"""Fields that nobody looks at over another. What tells of the network may stand in any file."""


def idle_fields(document: AgentDocument, transport: Transport) -> list[str]:
    """Those given that mean nothing over this transport, by the names that a file has for them."""
    fields = AgentDocument.model_fields
    return [
        fields[name].alias or name
        for other, names in OF_ONE_TRANSPORT.items()
        for name in names
        if other is not transport
        and name in document.model_fields_set
        and getattr(document, name) is not None
    ]
