"""How one host's agent is set up: the fields of its file are the settings.

The file says what a plan does not, or all without a plan. `AgentConfig.resolved` fills in the rest.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    create_model,
    model_validator,
)

from mltswitch.documents import parse_yaml, place_of, read_text, validate
from mltswitch.errors import UserInputError
from mltswitch.hostagent.endpoint import (
    AddressText,
    Endpoint,
    EndpointText,
    HostName,
    PlaceText,
    host_name_problem,
    look_up,
    parse_endpoint,
)
from mltswitch.hostagent.port_share import PortShareSettings
from mltswitch.hostagent.protocol.frames import MOST_CHANNELS, MOST_PEERS, ChannelName
from mltswitch.hostagent.spraying import LEAST_SOURCE_PORTS, MOST_BURST_PACKETS, MOST_PATHS, Spraying
from mltswitch.hostagent.tagging.classes import Classes, JobPlace, TwoQueues
from mltswitch.hostagent.tagging.policies import POLICIES
from mltswitch.hostagent.telemetry.trace import KINDS
from mltswitch.hostagent.transport.description import transports
from mltswitch.hostagent.transport.records import StopRule
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS, parse_bps, parse_bytes
from mltswitch.wire import AGENT_PORT, Dscp
from mltswitch.wire.internet import ip_udp_bytes

if TYPE_CHECKING:
    from mltswitch.hostagent.security.tls import TlsIdentity

AGENT_SCHEMA: Literal["mltswitch/agent/v1"] = "mltswitch/agent/v1"
DEFAULT_CHANNEL: Final = "default"
LOOPBACK: Final = "127.0.0.1"
LOOPBACK_RATE_BPS: Final = 100_000_000_000
"""Assumed line rate of loopback, in bit/s: more than a process can send, so that only processors limit it."""
LOOPBACK_MTU_BYTES: Final = 65_536
"""MTU of Linux's loopback interface; no cable carries more."""
MOST_DATAGRAM_BYTES: Final = 65_000
"""Longest datagram of the data plane, in bytes (its MLT_MOST_DATAGRAM_BYTES)."""
EXAMPLE_CLASSES: Final = Classes(control_dscp=40, gradient_dscp=(34,))
"""DSCPs used on loopback, where no switch reads them: those of the example fabric."""
BEYOND_LOOPBACK: Final = (
    "beyond loopback an agent needs a plan (--plan), or a file (-c) with two lines such as "
    "`line_rate: 10Gbps` and `classes: {control_dscp: 0, gradient_dscp: [0]}` (0: of no class)"
)

HOST_NOISE_NS: Final = 500_000
"""Delay in ns that a host's scheduling adds even to the shortest of a few round trips."""
LOW_SHARE: Final = 1 / 4
"""Share of a full queue's delay that does not count as congestion yet."""
BURST_SECONDS: Final = 125e-6
"""Longest time of a burst at the line rate, for which other packets wait behind it."""
ACKNOWLEDGED_TOGETHER: Final = 4
"""Packets acknowledged together: on a slow link, one acknowledgement for each would take much of it."""
MOST_ACKNOWLEDGEMENT_DELAY_NS: Final = 1_000_000
INCREASE_SHARE: Final = 0.01
"""TIMELY's additive increase step as a share of the line rate."""
SAFE_IMPORTANT_BOUND: Final = 0.01
"""Share of the important packets that may be lost if a receive allows losses but names no bound for them."""


def _one_of(kind: str, known: Callable[[], Iterable[str]]) -> AfterValidator:
    def checked(name: str) -> str:
        if name not in known():
            raise ValueError(f"{name[:60]!r} is no {kind}, write one of {', '.join(known())}")
        return name

    return AfterValidator(checked)


FileName = Annotated[str, Field(min_length=1, max_length=4096)]
"""A path, relative to the folder of the file that names it."""
RateBps = Annotated[int, BeforeValidator(parse_bps), Field(gt=0)]
SizeBytes = Annotated[int, BeforeValidator(parse_bytes)]
Share = Annotated[float, Field(ge=0, le=1)]
TransportName = Annotated[str, _one_of("transport", transports)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TraceSettings(_Part):
    """Settings of a trace that the agent itself writes, without its program's doing."""

    folder: FileName
    """Existing folder in which the trace is written, named after the agent: `NAME.jsonl`."""
    events: tuple[Annotated[str, _one_of("event", KINDS.keys)], ...] = ()
    """Names of the events that are written; empty: all, which makes small transfers slower."""


class Defaults(_Part):
    """Deadline, loss bounds and importance of transfers for which the caller does not give them."""

    deadline_seconds: float = Field(default=60, gt=0, le=1e6)
    loss_bound: Share = 0
    important_loss_bound: Share | None = None
    """Largest share of important packets that may be lost; None: 0.01, or the loss bound if that is less."""
    importance: Annotated[str, _one_of("policy", lambda: POLICIES)] = "magnitude"
    stop: StopRule = StopRule.PATIENT

    def important_bound(self, loss_bound: float) -> float:
        """Share of important packets that a receive with this loss bound may lose if it names none itself."""
        safe = min(loss_bound, SAFE_IMPORTANT_BOUND)
        return safe if self.important_loss_bound is None else self.important_loss_bound


def _schema(schema: dict[str, Any]) -> None:
    """Sections of transports are fields of the file, and nothing else is."""
    schema["properties"] |= {name: entry.settings.model_json_schema() for name, entry in transports().items()}
    schema["additionalProperties"] = False


class AgentConfig(BaseModel):
    """Settings of one host's agent, which override those that its plan provides.

    Beside these fields it has a section for each transport that has settings, under the transport's name.
    """

    model_config = ConfigDict(
        frozen=True, extra="allow", populate_by_name=True, json_schema_extra=_schema, title="AgentConfig"
    )

    schema_: Literal["mltswitch/agent/v1"] = Field(default=AGENT_SCHEMA, alias="schema")
    name: HostName | None = None
    """This host's name in the plan and to its peers; None: that of its certificate, or else the machine's."""
    plan: FileName | None = None
    profile: FileName | None = None
    """The model profile that the plan was made for, so that layers and tensors have names."""
    keys: FileName | None = None
    """Folder with this host's keys, from `mltswitch agent keys`; None: plain text, over loopback alone."""
    plaintext: StrictBool = False
    """Whether the agent may run without keys beyond loopback: for networks that are yours alone."""
    addresses: tuple[AddressText, ...] = Field(default=(), max_length=MOST_PATHS)
    """Local addresses for tensors, one for each path (the same one again where ports or routes name paths);
    empty: the plan's, else that of `listen`, else 127.0.0.1."""
    listen: EndpointText | None = None
    """Address of the control channel; None: the host's address in the plan, or the first of `addresses`."""
    data_port: int | None = Field(default=None, ge=0, lt=1 << 16, strict=True)
    """UDP port for tensors; None or 0: any free one. Paths named by source port have ports of their own."""
    peers: dict[HostName, PlaceText] = Field(default={}, max_length=MOST_PEERS)
    """Where peers listen, by IP address or by name, in addition to the hosts of the plan."""
    mtu_bytes: int = Field(default=1500, ge=576, le=LOOPBACK_MTU_BYTES, strict=True)
    """Length of the longest packet in bytes; by default the plan's MTU, or 65,536 over loopback alone."""
    authenticate: StrictBool | None = None
    """Whether every datagram carries an authentication tag; None: if there are keys."""
    burst_packets: int | None = Field(default=None, ge=1, le=MOST_BURST_PACKETS, strict=True)
    """Packets in a row with one path and one DSCP/ECN byte; None: the plan's, or what leaves in 125 µs."""
    line_rate_bps: RateBps | None = Field(default=None, alias="line_rate")
    """Rate of this host's link; None: the plan's or, over loopback, LOOPBACK_RATE_BPS."""
    rate_share: float = Field(default=1.0, gt=0, le=1)
    """Share of the line rate that gradients may use."""
    queue_bytes: SizeBytes | None = Field(default=None, alias="queue", ge=0)
    """Queue length from which the switch drops unimportant packets; None or 0: not known."""
    buffer_bytes: SizeBytes = Field(default=8 << 20, alias="buffer", ge=65_536, lt=1 << 30)
    """Buffer of each data socket in each direction, as far as the kernel grants it."""
    classes: Classes | None = None
    spraying: Spraying = Spraying()
    port_share: PortShareSettings | None = None
    """How jobs of several agents share one port, by priority; None: no other agent is told of this one."""
    job: JobPlace | None = None
    """This job among those that share the fabric, each with its own gradient classes; None: it has all."""
    two_queues: int | None = Field(default=None, ge=1, le=65_536, strict=True)
    """Two classes stand for many priorities: so many foremost unfinished layers use the first class."""
    transport: TransportName = "mlt"
    """Transport of the channel `default`, the same at both ends."""
    channels: dict[ChannelName, TransportName] = Field(default={}, max_length=MOST_CHANNELS - 1)
    """Further channels: the transport of each, by channel name."""
    defaults: Defaults = Defaults()
    trace: TraceSettings | None = None
    """Where and of what the agent writes a trace; None: nowhere."""
    _source: str = PrivateAttr(default="")
    """The file, for errors."""

    @model_validator(mode="after")
    def _sections_are_of_transports(self) -> Self:
        if self.__pydantic_extra__:
            known: dict[str, Any] = {name: (entry.settings, None) for name, entry in transports().items()}
            sections = create_model("Sections", __config__=ConfigDict(extra="forbid"), **known)
            made = sections.model_validate(self.__pydantic_extra__)  # what is wrong there is wrong here
            self.__pydantic_extra__.update((name, getattr(made, name)) for name in made.model_fields_set)
        return self

    # From a file to settings

    @classmethod
    def load(
        cls, path: Path | str | None, options: Mapping[str, object] | None = None, default_name: str = ""
    ) -> Self:
        """Read settings from a file (None: no file); the fields in `options` override those of the file.

        `default_name` names this host if neither the settings, keys nor plan do.
        Raises UserInputError naming file, line and field, also for the section of a transport where the file
        names its transport and no channel has that one; UnsupportedPlanError where no agent can use the
        plan's paths.
        """
        where, text = "command line" if path is None else str(path), "{}"
        if path is not None:
            text = read_text(Path(path))
        data = parse_yaml(text, where=where)
        own: dict[str, Any] = dict(data) if isinstance(data, dict) else {}
        if isinstance(data, dict):
            data |= options or {}
        config = validate(data, cls, where=where, text=text)
        config._source = where
        channels = own.get("channels")  # which options may have replaced
        used = [own.get("transport"), *(channels.values() if isinstance(channels, dict) else ())]
        used += [config.transport, *config.channels.values()]
        strays = [name for name in transports() if name in own and name not in used]
        if strays and "transport" in own:  # a file that names none leaves that to the training job
            stray = strays[0]
            raise UserInputError(
                f"no channel of this file has the transport {stray}",
                where=place_of(stray, where=where, text=text),
                expected=f"transport: {stray}, channels: {{NAME: {stray}}}, or no section {stray}",
            )
        if default_name and config.name is config.keys is config.plan is None:
            config = config.model_copy(update={"name": default_name})
        try:
            return config.resolved(Path() if path is None else Path(path).parent)
        except UserInputError as error:
            fields = {entry.alias or name for name, entry in cls.model_fields.items()}
            if error.where.partition(".")[0] in fields:
                error.where = place_of(error.where, where=where, text=text)
            raise

    def resolved(self, folder: Path | str = "") -> Self:
        """The settings with nothing left open: what the plan says is filled in, and no plan is named.

        Args:
            folder: folder to which the names of files are relative.

        Raises UserInputError, whose `where` is the field or the file that is wrong; UnsupportedPlanError.
        """
        folder, plans = Path(folder), "is the plan's, leave out one of them"
        is_planned = self.plan is not None
        _refuse(
            ("plaintext", self.plaintext and self.keys, "keys and plaintext: true exclude each other"),
            ("profile", self.profile and not is_planned, "names the layers of a plan, and there is no plan"),
            ("line_rate", is_planned and self.line_rate_bps is not None, plans),
            ("queue", is_planned and self.queue_bytes is not None, plans),
            ("classes", is_planned and self.classes is not None, plans),
            ("channels", DEFAULT_CHANNEL in self.channels, "the transport of default is the field transport"),
            ("addresses", len({":" in each for each in self.addresses}) > 1, "are all IPv4 or all IPv6"),
        )
        keys = None if self.keys is None else str((folder / self.keys).absolute())
        authenticate = keys is not None if self.authenticate is None else self.authenticate
        shared = self.port_share
        if shared is not None:
            shared = shared.model_copy(update={"file": str((folder / shared.file).absolute())})
        trace = self.trace
        if trace is not None:
            trace = trace.model_copy(update={"folder": str((folder / trace.folder).absolute())})
        parts = {"authenticate": authenticate, "port_share": shared, "trace": trace}
        made = self.model_copy(update={"keys": keys, **parts})
        fields: dict[str, Any] = {"name": made.own_name, "plan": None, "profile": None}
        fields |= made._of_plan(folder, fields["name"]) if is_planned else made._of_itself()
        made = made.model_copy(update=fields)
        if made.job is not None:
            made = made.model_copy(update={"classes": made._classes.of_job(made.job), "job": None})
        made._check()
        return made

    def _of_plan(self, folder: Path, name: str) -> dict[str, Any]:
        from mltswitch.hostagent.planned import planned_fields  # what reads plans takes long to load

        try:
            fields = planned_fields(folder, str(self.plan), name, self.profile, self.spraying)
        except UserInputError as error:
            if error.where == "name" and self.name is self.keys is None:
                error.hint = "say which host of the plan this is: name, --name or keys"
            raise
        for field in {"listen", "mtu_bytes", "burst_packets"} & self.model_fields_set:
            fields[field] = getattr(self, field) or fields[field]
        fields["peers"] |= self.peers
        if self.addresses:
            fields["spraying"], fields["addresses"] = self._sprayed(self.addresses)
        return fields

    def _of_itself(self) -> dict[str, Any]:
        listen = None if self.listen is None else parse_endpoint(self.listen)
        is_every = listen is not None and listen.ip.is_unspecified and not self.addresses
        _refuse(("listen", is_every, f"{listen} is every address of this host, data needs one in addresses"))
        spraying, addresses = self._sprayed(self.addresses or ((listen.address,) if listen else (LOOPBACK,)))
        is_loopback = all(ip_address(address).is_loopback for address in addresses)
        for field, value in (("line_rate", self.line_rate_bps), ("classes", self.classes)):
            if value is None and not is_loopback:
                raise UserInputError("is missing", where=field, hint=BEYOND_LOOPBACK)
        is_long = is_loopback and "mtu_bytes" not in self.model_fields_set
        return {
            "addresses": addresses,
            "spraying": spraying,
            "listen": self.listen or str(Endpoint(addresses[0], AGENT_PORT)),
            "line_rate_bps": self.line_rate_bps or LOOPBACK_RATE_BPS,
            "mtu_bytes": LOOPBACK_MTU_BYTES if is_long else self.mtu_bytes,
            "classes": self.classes or EXAMPLE_CLASSES,
        }

    def _sprayed(self, addresses: tuple[str, ...]) -> tuple[Spraying, tuple[str, ...]]:
        """As the file has it, and an address for each path."""
        spraying = self.spraying.model_copy(update={"mode": self.spraying.mode or "alias"})
        if spraying.mode == "entropy":
            ports = spraying.source_ports or LEAST_SOURCE_PORTS
            spraying = spraying.model_copy(update={"source_ports": ports})
            addresses = (*dict.fromkeys(addresses),) * (ports if len(set(addresses)) == 1 else 1)
        elif spraying.mode == "p4" and len(set(addresses)) == 1:
            addresses = addresses[:1] * max(map(len, spraying.routes.values()), default=1)
        return spraying, addresses

    def _check(self) -> None:
        """What only all fields together show."""
        spraying, mode, is_ipv4 = self.spraying, self.spraying.mode, ":" not in self.addresses[0]
        is_split = mode in {"entropy", "p4"} and len(set(self.addresses)) > 1
        is_routed = is_ipv4 and spraying.interface and spraying.gateway and spraying.routes
        has_segments = not is_ipv4 and [*map(bool, spraying.segments)] == [True] * len(self.addresses)
        is_one_class = self.two_queues and len(self._classes.gradient_dscp) < 2
        lists, routes = "one for each of addresses, which are IPv6", "with interface and gateway, over IPv4"
        ports = "paths of the mode entropy have their ports, from spraying.first_source_port on"
        _refuse(
            ("addresses", is_split, f"paths of the mode {mode} have one address"),
            ("data_port", mode == "entropy" and self.data_port, ports),
            ("spraying.segments", mode == "srv6" and not has_segments, f"expected {lists}"),
            ("spraying.routes", mode == "p4" and not is_routed, f"expected {routes}"),
            ("two_queues", is_one_class, "there is one gradient class"),
        )
        for endpoint in (self.listen_at, *(Endpoint(address, 0) for address in self.addresses)):
            self._check_plaintext(endpoint, "keys")

    def _check_plaintext(self, endpoint: Endpoint, where: str) -> Endpoint:
        if self.keys is None and not self.plaintext and not endpoint.ip.is_loopback:
            raise UserInputError(
                f"plain text does not leave this machine, and {endpoint.address} does",
                where=where,
                hint="give each host its keys (mltswitch agent keys), or say plaintext in a laboratory",
            )
        return endpoint

    # What is asked of resolved settings

    @property
    def _classes(self) -> Classes:
        return self.classes or EXAMPLE_CLASSES

    @property
    def control_dscp(self) -> Dscp:
        """DSCP of control channels and of acknowledgements."""
        return self._classes.control_dscp

    def layer_number(self, layer: int | str) -> int:
        """Number of a layer, from 0 in forward order; raises UserInputError for an unknown layer."""
        return self._classes.layer_number(layer)

    def dscp(self, layer: int | str) -> Dscp:
        """DSCP of a layer, given by its number or name; raises UserInputError."""
        return self._classes.of_layer(layer)

    def dscp_of_class(self, name: str) -> Dscp:
        """DSCP of a traffic class such as `gradient-0`; raises UserInputError if tensors may not use it."""
        return self._classes.of_class(name)

    def two_queues_of_classes(self) -> TwoQueues | None:
        """A new `TwoQueues` if the first and last gradient class stand for many priorities; else None."""
        points = self._classes.gradient_dscp
        return None if self.two_queues is None else TwoQueues(points[0], points[-1], self.two_queues)

    @property
    def own_name(self) -> str:
        """This host's name, from its certificate, the field `name`, or the machine; raises UserInputError."""
        identity = self.identity()
        if identity is not None and self.name not in {None, identity.name}:
            problem = f"{self.name!r} is not the name in the certificate of {self.keys}"
            raise UserInputError(problem, where="name", expected=identity.name)
        name = identity.name if identity else self.name or socket.gethostname().partition(".")[0]
        if host_name_problem(name):
            raise UserInputError("this host has no name", where="name", hint="give it, or keys")
        return name

    def identity(self) -> "TlsIdentity | None":
        """This host's TLS identity, read from its keys; None: without TLS. Raises UserInputError."""
        if self.keys is None:
            return None
        from mltswitch.hostagent.security.tls import load_identity

        return load_identity(Path(self.keys))

    @property
    def listen_at(self) -> Endpoint:
        """Address and port at which the control channel listens."""
        return parse_endpoint(self.listen or LOOPBACK)

    def endpoint(self, peer: str, remote: Endpoint | str | None = None) -> Endpoint:
        """Where a peer listens, from `remote` or the settings; names are looked up. Raises UserInputError."""
        where = f"peer {peer[:60]}"
        if isinstance(remote, Endpoint):
            return self._check_plaintext(remote, where)
        text = self.peers.get(peer) if remote is None else remote
        if text is None:
            known = shorten(", ".join(self.peers), 80, placeholder=" …")
            expected = f"NAME=ADDRESS:PORT{', or one of ' * bool(known)}{known}"
            raise UserInputError("nobody says where it listens", where=where, expected=expected)
        if remote is None and self._source:
            where = f"{self._source}: peers.{peer}"
        return self._check_plaintext(look_up(text, where=where, like=self.addresses[0]), where)

    def section(self, transport: str) -> Any:
        """Settings of a transport as its own settings model: the file's section of it, or defaults."""
        return (self.__pydantic_extra__ or {}).get(transport) or transports()[transport].settings()

    def path_socket(self, path: int) -> tuple[str, int]:
        """Local address and UDP port of a path; 0: any free port."""
        first = self.spraying.first_source_port if self.spraying.mode == "entropy" else None
        return self.addresses[path], self.data_port or 0 if first is None else first + path

    def segment_header(self, path: int) -> bytes:
        """IPv6 routing header (IPV6_RTHDR) of a path's socket, without the destination; empty: none."""
        if self.spraying.mode != "srv6" or not self.spraying.sticky:
            return b""
        hops = self.spraying.segments[path]
        fixed = bytes((0, 2 * (len(hops) + 1), 4, len(hops), len(hops), 0, 0, 0))  # RFC 8754, section 2
        return fixed + bytes(16) + b"".join(hop.packed for hop in reversed(hops))

    @property
    def datagram_bytes(self) -> int:
        """Longest UDP payload in bytes that fits into one packet on every path."""
        headers = ip_udp_bytes(self.addresses[0]) + self.spraying.header_bytes
        return min(self.mtu_bytes - headers, MOST_DATAGRAM_BYTES)

    @property
    def burst(self) -> int:
        """Packets in a row with one path and DSCP/ECN byte: as set, or few enough to delay others little."""
        if self.burst_packets is not None:
            return self.burst_packets
        burst_bytes = BURST_SECONDS * (self.line_rate_bps or LOOPBACK_RATE_BPS) / BITS_PER_BYTE
        return min(MOST_BURST_PACKETS, max(1, int(burst_bytes / self.datagram_bytes)))

    @property
    def acknowledgement_delay_ns(self) -> int:
        """How many ns a packet may wait to be acknowledged together with later ones, at least 200 µs."""
        packets_bits = ACKNOWLEDGED_TOGETHER * self.mtu_bytes * BITS_PER_BYTE
        packets_ns = round(packets_bits / (self.line_rate_bps or LOOPBACK_RATE_BPS) * NANOSECONDS)
        return min(MOST_ACKNOWLEDGEMENT_DELAY_NS, packets_ns)

    def rate_options(self, window_bytes: int = 0) -> dict[str, Any]:
        """Fields of a C `struct mlt_rate_options` for one peer, from the line rate and the queue, if known.

        T_low lies the noise of hosts above the round trip of an idle network, or a quarter of a full queue
        where that is more; T_high half-way from there to a full queue, so that flows slow down before it is
        full, but half the noise above T_low at least. Where no queue is known the data plane guesses both.
        """
        line_rate_bps = self.line_rate_bps or LOOPBACK_RATE_BPS
        low_ns = high_ns = 0
        if self.queue_bytes:
            drain_ns = round(self.queue_bytes * BITS_PER_BYTE / line_rate_bps * NANOSECONDS)
            low_ns = max(HOST_NOISE_NS, round(LOW_SHARE * drain_ns))
            high_ns = low_ns + (max(HOST_NOISE_NS, drain_ns - low_ns) + 1) // 2
        return {
            "cap_bps": line_rate_bps * self.rate_share,
            "increase_bps": line_rate_bps * INCREASE_SHARE,
            "low_ns": low_ns,
            "high_ns": high_ns,
            "window_bytes": window_bytes,
        }


def _refuse(*rules: tuple[str, object, str]) -> None:
    """Raises UserInputError for the first that is broken: field, whether it is, and what is wrong."""
    for field, is_broken, problem in rules:
        if is_broken:
            raise UserInputError(problem, where=field)
