"""From a configuration file, and the plan that it may name, to an agent's settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from mltswitch.documents import read_text
from mltswitch.errors import UserInputError
from mltswitch.hostagent.configuration.document import AgentDocument, ListedClasses, idle_fields
from mltswitch.hostagent.configuration.places import PeerPlaces, look_up, parse_endpoint, parse_place
from mltswitch.hostagent.configuration.reading import Source, read_document
from mltswitch.hostagent.control.credentials import Credentials
from mltswitch.hostagent.control.security import Plaintext, Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.settings import DEFAULT_BUFFER_BYTES, AgentSettings
from mltswitch.hostagent.spraying.modes import ByAddress
from mltswitch.hostagent.spraying.settings import SprayingSettings
from mltswitch.hostagent.tagging.two_queues import TwoQueues
from mltswitch.hostagent.tcp.settings import TcpSettings
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_PAYLOAD_BYTES, UDP_MAXIMUM_SEGMENTS
from mltswitch.hostagent.transport.rate import HOST_NOISE_NS, USER_SPACE_ROUND_TRIP_NS, RateSettings
from mltswitch.hostagent.transport.settings import Transport
from mltswitch.wire import AGENT_PORT, Dscp
from mltswitch.wire.internet import ip_udp_bytes

if TYPE_CHECKING:
    from mltswitch.hostagent.configuration.planned import PlannedAgent
    from mltswitch.plan import Plan

LOOPBACK_ADDRESS: Final = "127.0.0.1"
LOOPBACK_RATE_BPS: Final = 100_000_000_000
"""More than a process can send: what loopback carries is what the processors manage."""
DEFAULT_MTU_BYTES: Final = 1500
STEADY_NOISE_NS: Final = 10**9
"""Round trips say nothing where no switch holds a queue: on loopback, and where nobody knows the queue."""
BEYOND_LOOPBACK: Final = (
    "beyond loopback an agent needs a plan (--plan), or a file (-c) with two lines such as "
    "`line_rate: 10Gbps` and `classes: {control_dscp: 0, gradient_dscp: [0]}` (0: of no class)"
)
EXAMPLE_CLASSES: Final = ListedClasses(control_dscp=40, gradient_dscp=(34,))
"""On loopback, where no switch reads them: the example fabric's."""


class Classes(Protocol):
    """Which code point a tensor travels with."""

    def of_layer(self, layer: int | str) -> Dscp:
        """Of a layer's class; raises UserInputError."""
        ...

    def of_class(self, name: str) -> Dscp:
        """Of a class by its name; raises UserInputError."""
        ...

    def layer_number(self, layer: int | str) -> int:
        """0-based in forward order; raises UserInputError."""
        ...

    def two_queues(self, foremost: int) -> TwoQueues:
        """Many priorities in the first and the last class; raises UserInputError where there is one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfiguration:
    """What a configuration file comes to."""

    settings: AgentSettings
    peers: Mapping[str, Endpoint]
    """Where others can be reached, by their names; a host's name in it is looked up when it is asked for."""
    classes: Classes
    burst_packets: int
    """n, as the plan's thresholds assume it."""
    plan_name: str | None
    """Of the plan's fabric; None: there is no plan."""

    def dscp(self, layer: int | str = 0, traffic_class: str | None = None) -> Dscp:
        """Of a layer, by its number or name, or of a class where one is named; raises UserInputError."""
        return self.classes.of_layer(layer) if traffic_class is None else self.classes.of_class(traffic_class)

    def peer(self, name: str) -> Endpoint:
        """Where it listens; raises UserInputError for one that neither file nor plan knows, or without an
        address."""
        found = self.peers.get(name)
        if found is None:
            known = list(self.peers)
            listed = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
            raise UserInputError(
                "nobody says where it listens",
                where=f"peer {name[:60]}",
                expected=f"NAME=ADDRESS:PORT{', or one of ' + listed if listed else ''}",
            )
        return found

    def endpoint(self, text: str, *, where: str) -> Endpoint:
        """Of a peer, as somebody writes it: by address or by name; raises UserInputError."""
        try:
            place = parse_place(text)
        except ValueError as error:
            raise UserInputError(str(error), where=where) from None
        return look_up(place, where=where, like=self.settings.addresses)


def load_configuration(path: Path | str) -> AgentConfiguration:
    """Read a configuration file; raises UserInputError naming file, line and field."""
    file = Path(path)
    read = partial(read_text, file)
    return configured(read_document(file), folder=file.parent, where=str(file), read=read)


def configured(
    document: AgentDocument,
    *,
    folder: Path,
    where: str,
    default_name: str | None = None,
    read: Callable[[], str] | None = None,
) -> AgentConfiguration:
    """What a document comes to.

    Args:
        document: checked already.
        folder: files that it names are looked for from here.
        where: begins errors.
        default_name: of this host where neither the document nor a certificate names it.
        read: has the text of the file that `where` names, so that errors have lines.

    Raises UserInputError, or UnsupportedPlanError for a plan whose paths agents cannot use.
    """
    source = Source(where, read)
    idle = idle_fields(document, document.transport)
    if idle:
        other = Transport.MLT if document.transport is Transport.TCP else Transport.TCP
        raise UserInputError(
            f"means nothing over {document.transport}",
            where=source.place(idle[0]),
            expected=f"transport: {other}, or no such field",
        )
    security = _security(document, folder, source)
    name = _name(document, security, source) or default_name
    if name is None:
        raise UserInputError("this host has no name", where=source.place("name"), hint="give it, or keys")
    if document.plan is None:
        return _without_plan(document, security, name, source)
    return _with_plan(document, security, name, folder, source)


def _security(document: AgentDocument, folder: Path, source: Source) -> Security:
    if document.keys is None:
        return Plaintext(beyond_loopback=document.plaintext)
    from mltswitch.hostagent.control.tls import load_identity

    keys = folder / document.keys
    try:
        is_folder = keys.is_dir()
    except OSError as error:  # above all a folder on the way that this user may not enter
        raise UserInputError(
            f"{keys}: cannot be read: {error.strerror}",
            where=source.place("keys"),
            hint="the agent's user needs to enter every folder on the way to its keys",
        ) from None
    if not is_folder:
        raise UserInputError(
            f"{keys}: no such folder",
            where=source.place("keys"),
            hint="`mltswitch agent keys` makes a folder for each host",
        )
    return load_identity(Credentials.in_folder(keys))


def _name(document: AgentDocument, security: Security, source: Source) -> str | None:
    if isinstance(security, Plaintext):
        return document.name
    if document.name not in {None, security.name}:
        raise UserInputError(
            f"{document.name!r} is not the name in the certificate of {document.keys}",
            where=source.place("name"),
            expected=security.name,
        )
    return security.name


# Without a plan


class _Listed:
    """Classes of a list of code points."""

    def __init__(self, listed: ListedClasses, source: Source) -> None:
        self._listed = listed
        self._source = source

    def of_layer(self, layer: int | str) -> Dscp:
        number, points, layers = self.layer_number(layer), self._listed.gradient_dscp, self._listed.layers
        if len(points) == 1:
            return points[0]
        if layers is None:
            raise UserInputError(
                f"which of {len(points)} classes carries layer {number}?",
                where=self._source.place("classes.layers"),
                expected="the number of the model's layers",
                hint="or name the class",
            )
        return points[number * len(points) // layers]

    def of_class(self, name: str) -> Dscp:
        names = [f"gradient-{number}" for number in range(len(self._listed.gradient_dscp))]
        if name not in names:
            raise UserInputError(
                f"tensors cannot travel in class {name[:60]!r}", where="class", expected=", ".join(names)
            )
        return self._listed.gradient_dscp[names.index(name)]

    def layer_number(self, layer: int | str) -> int:
        if isinstance(layer, str):
            raise UserInputError(
                f"nobody says which layer {layer[:60]!r} is",
                where="layer",
                expected="a number",
                hint="names need a plan and its profile",
            )
        layers = self._listed.layers
        if layer < 0 or (layers is not None and layer >= layers):
            expected = "0 or more" if layers is None else f"0-{layers - 1}"
            raise UserInputError(f"there is no layer {layer}", where="layer", expected=expected)
        return layer

    def two_queues(self, foremost: int) -> TwoQueues:
        points = self._listed.gradient_dscp
        if len(points) < 2:
            raise UserInputError("one gradient class", where="classes.gradient_dscp", expected="2 or more")
        return TwoQueues(points[0], points[-1], foremost)


def _without_plan(
    document: AgentDocument, security: Security, name: str, source: Source
) -> AgentConfiguration:
    listen = parse_endpoint(document.listen) if document.listen is not None else None
    addresses = document.addresses or ((listen.address,) if listen else (LOOPBACK_ADDRESS,))
    is_loopback = all(ip_address(address).is_loopback for address in addresses)
    if not is_loopback:
        for field, value in (("line_rate", document.line_rate_bps), ("classes", document.classes)):
            if value is None:
                raise UserInputError(
                    "is missing",
                    where=source.place(field),
                    hint=BEYOND_LOOPBACK,
                )
    if listen is not None and listen.ip.is_unspecified and not document.addresses:
        raise UserInputError(
            f"{listen.address} is every address of this host, and data needs one",
            where=source.place("listen"),
            expected="one of this host's addresses, or addresses beside it",
        )
    rate = _rate(
        document, source, line_rate_bps=document.line_rate_bps or LOOPBACK_RATE_BPS, is_loopback=is_loopback
    )
    listed = document.classes or EXAMPLE_CLASSES
    classes = _Listed(listed, source)
    settings = _settings(
        document,
        security,
        name,
        listen,
        addresses,
        rate,
        source,
        control_dscp=listed.control_dscp,
        mtu_bytes=document.mtu_bytes or DEFAULT_MTU_BYTES,
        classes=classes,
    )
    return AgentConfiguration(
        settings=settings,
        peers=_peers(document, {}, source, addresses),
        classes=classes,
        burst_packets=document.burst_packets or UDP_MAXIMUM_SEGMENTS,
        plan_name=None,
    )


def _rate(document: AgentDocument, source: Source, *, line_rate_bps: int, is_loopback: bool) -> RateSettings:
    queue_bytes = document.queue_bytes or 0
    is_steady = is_loopback or not queue_bytes
    try:
        return RateSettings.for_network(
            line_rate_bps,
            queue_bytes=queue_bytes,
            base_round_trip_ns=_round_trip_ns(document),
            noise_ns=STEADY_NOISE_NS if is_steady else HOST_NOISE_NS,
        )
    except ValueError as error:
        raise UserInputError(str(error), where=source.place("line_rate, queue")) from None


def _round_trip_ns(document: AgentDocument) -> int:
    seconds = document.base_round_trip_seconds
    return USER_SPACE_ROUND_TRIP_NS if seconds is None else max(1, round(seconds * 1e9))


# With a plan


class _Planned:
    """Classes of a plan."""

    def __init__(self, plan: "Plan", profile: str | None, folder: Path) -> None:
        from mltswitch.hostagent.tagging.priorities import PlanPriorities
        from mltswitch.profile import bundled_names, resolve_profile

        found = None
        if profile is not None:
            is_bundled = profile in bundled_names()
            found = resolve_profile(profile if is_bundled else str(folder / profile))
        self._priorities = PlanPriorities(plan, found)

    def of_layer(self, layer: int | str) -> Dscp:
        return self._priorities.of_layer(layer).dscp

    def of_class(self, name: str) -> Dscp:
        return self._priorities.of_class(name).dscp

    def layer_number(self, layer: int | str) -> int:
        return self._priorities.layer_number(layer)

    def two_queues(self, foremost: int) -> TwoQueues:
        return self._priorities.two_queues(foremost)


def _with_plan(
    document: AgentDocument, security: Security, name: str, folder: Path, source: Source
) -> AgentConfiguration:
    from mltswitch.hostagent.configuration.planned import planned_agent
    from mltswitch.hostagent.transport.planned_rate import rate_settings
    from mltswitch.plan import load_plan

    plan = load_plan(folder / str(document.plan))
    if name not in {host.name for host in plan.topology.hosts}:
        raise _no_host_of_plan(document, security, name, plan, source)
    planned = planned_agent(plan, name, document.spraying)
    listen = (
        Endpoint(planned.address, AGENT_PORT) if document.listen is None else parse_endpoint(document.listen)
    )
    has_source_ports = document.transport is Transport.MLT and planned.first_port is not None
    if has_source_ports and document.data_port is not None and not document.addresses:
        raise UserInputError(
            f"the plan's paths are UDP source ports, from {planned.first_port} on",
            where=source.place("data_port"),
            expected="nothing",
            hint="spraying.first_source_port is where they begin",
        )
    classes = _Planned(plan, document.profile, folder)
    addresses = document.addresses or planned.addresses
    settings = _settings(
        document,
        security,
        name,
        listen,
        addresses,
        rate_settings(plan, name, _round_trip_ns(document)),
        source,
        control_dscp=planned.control_dscp,
        mtu_bytes=document.mtu_bytes or planned.mtu_bytes,
        classes=classes,
        planned=None if document.addresses else planned,
    )
    return AgentConfiguration(
        settings=settings,
        peers=_peers(document, planned.peers, source, addresses),
        classes=classes,
        burst_packets=document.burst_packets or min(planned.burst_packets, UDP_MAXIMUM_SEGMENTS),
        plan_name=plan.fabric.name,
    )


def _no_host_of_plan(
    document: AgentDocument, security: Security, name: str, plan: "Plan", source: Source
) -> UserInputError:
    known = [host.name for host in plan.topology.hosts]
    is_said = _name(document, security, source) is not None
    return UserInputError(
        f"no host {name!r} in fabric {plan.fabric.name}"
        + ("" if is_said else ", and nothing else names this one"),
        where=source.place("name"),
        expected=f"one of {', '.join(known[:8])}" + (", …" if len(known) > 8 else ""),
        hint="" if is_said else "say which host of the plan this is: name, --name or keys",
    )


# With and without


def _settings(
    document: AgentDocument,
    security: Security,
    name: str,
    listen: Endpoint | None,
    addresses: tuple[str, ...],
    rate: RateSettings,
    source: Source,
    *,
    control_dscp: Dscp,
    mtu_bytes: int,
    classes: Classes,
    planned: "PlannedAgent | None" = None,
) -> AgentSettings:
    # Over TCP, the data cannot have the port of the control channel, which is this one, too.
    usual_port = AGENT_PORT if document.transport is Transport.MLT else 0
    data_port = usual_port if document.data_port is None else document.data_port
    spray = planned.spray if planned else ByAddress()
    two_queues = _two_queues(document, classes, source)
    try:
        return AgentSettings(
            name=name,
            addresses=addresses,
            security=security,
            rate=rate,
            control_dscp=control_dscp,
            listen=listen,
            data_port=data_port if planned is None or planned.first_port is None else planned.first_port,
            spray=spray,
            payload_bytes=payload_bytes(mtu_bytes, addresses[0], spray.header_bytes),
            total_rate_bps=document.total_rate_bps,
            two_queues=two_queues,
            authenticate=document.authenticate,
            buffer_bytes=document.buffer_bytes or DEFAULT_BUFFER_BYTES,
            expected_peers=document.expected_peers,
            transport=document.transport,
            tcp=TcpSettings(streams=document.tcp.streams, congestion_control=document.tcp.congestion_control),
            spraying=SprayingSettings(policy=document.spraying.policy),
            catch_reuse=document.catch_reuse,
        )
    except UserInputError as error:
        error.where = source.place(error.where)
        raise
    except ValueError as error:
        raise UserInputError(str(error), where=source.name) from None


def _two_queues(document: AgentDocument, classes: Classes, source: Source) -> TwoQueues | None:
    if document.two_queues is None:
        return None
    try:
        return classes.two_queues(document.two_queues)
    except UserInputError as error:
        error.where = source.place("two_queues")
        raise


def payload_bytes(mtu_bytes: int, address: str, path_header_bytes: int = 0) -> int:
    """Longest UDP payload of a packet without fragments, for the IP version of the address."""
    return min(mtu_bytes - ip_udp_bytes(address) - path_header_bytes, UDP_MAXIMUM_PAYLOAD_BYTES)


def _peers(
    document: AgentDocument, planned: Mapping[str, Endpoint], source: Source, addresses: tuple[str, ...]
) -> PeerPlaces:
    named = {name: parse_place(text) for name, text in document.peers.items()}
    return PeerPlaces(planned, named, place=lambda name: source.place(f"peers.{name}"), like=addresses)
