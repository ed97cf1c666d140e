"""The addresses that a job sends from: their interfaces, what fits, and whether answers come in."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.hostagent.doctor.findings import Finding, Status
from mltswitch.hostagent.doctor.interfaces import UDP_SEGMENTATION, has_feature, setting
from mltswitch.hostagent.doctor.settings import SEGMENTS_MODE, SOURCE_ROUTE_MODE, DoctorSettings, LocalPath
from mltswitch.hostagent.network.features import egress, interface_mtu_bytes
from mltswitch.hostagent.network.netlink import interface_with

STRICT: Final = 1
"""rp_filter (Linux, networking/ip-sysctl): a packet comes in only where an answer would leave."""


def address_findings(settings: DoctorSettings) -> tuple[Finding, ...]:
    """Of every address of the settings and every interface that has some."""
    owners = {path.address: interface_with(path.address) for path in settings.paths}
    missing = [address for address, owner in owners.items() if owner is None]
    interfaces = sorted({owner for owner in owners.values() if owner is not None})
    found = []
    if missing:
        found.append(
            Finding(
                "addresses",
                Status.PROBLEM,
                f"this host does not have {', '.join(missing)}",
                "the paths of these addresses do not exist",
                "as root, the lines of: mltswitch agent paths --setup",
            )
        )
    elif owners:
        found.append(
            Finding("addresses", Status.OK, f"{len(owners)} on {', '.join(interfaces)}, one path each")
        )
    if settings.mode == SOURCE_ROUTE_MODE and owners:
        found.append(
            Finding(
                "source routes",
                Status.WARNING,
                "not examined",
                "datagrams of the doctor go between the hosts' own addresses, as the switches route them",
                "mltswitch acceptance examines switches one by one",
            )
        )
    for interface in interfaces:
        ends = [path for path in settings.paths if owners[path.address] == interface]
        found += _of_interface(interface, ends, settings)
    return tuple(found)


def _of_interface(interface: str, ends: Sequence[LocalPath], settings: DoctorSettings) -> Iterator[Finding]:
    yield _payload(interface, ends, settings.payload_bytes)
    yield _segmentation(interface)
    if any(ip_address(end.address).version == 4 for end in ends):
        yield _reverse_path_filter(interface, len({end.address for end in ends}))
    if settings.mode == SEGMENTS_MODE and not setting("ipv6", "conf", interface, "seg6_enabled"):
        yield Finding(
            f"{interface}: seg6_enabled",
            Status.PROBLEM,
            "0",
            "the interface drops packets with a segment list, and the mode is srv6",
            f"as root: sysctl -w net.ipv6.conf.{interface.replace('.', '/')}.seg6_enabled=1",
        )


def _payload(interface: str, ends: Sequence[LocalPath], wanted_bytes: int) -> Finding:
    subject = f"{interface}: MTU"
    longest = interface_mtu_bytes(interface)
    fits = longest - max(end.header_bytes for end in ends)
    seen = f"{longest:,} bytes: payload of {fits:,} fits, {wanted_bytes:,} wanted"
    if fits >= wanted_bytes:
        return Finding(subject, Status.OK, seen)
    return Finding(
        subject,
        Status.PROBLEM,
        seen,
        "the kernel refuses every full packet: the agent does not fragment",
        f"as root: ip link set {interface} mtu {longest + wanted_bytes - fits}, where the network "
        f"takes it, or a payload of {fits}",
    )


def _segmentation(interface: str) -> Finding:
    subject = f"{interface}: {UDP_SEGMENTATION}"
    match has_feature(interface, UDP_SEGMENTATION):
        case True:
            return Finding(subject, Status.OK, "on")
        case False:
            return Finding(
                subject,
                Status.WARNING,
                "off",
                "the kernel cuts bursts in software: right, but it costs processor time",
                f"as root: ethtool -K {interface} {UDP_SEGMENTATION} on, where the device can",
            )
        case None:
            return Finding(subject, Status.OK, "not told by this device")


def _reverse_path_filter(interface: str, addresses: int) -> Finding:
    value = _rp_filter(interface)
    seen = "not readable" if value is None else f"{value} (the larger of all and {interface})"
    meaning = ""
    if value == STRICT and addresses > 1:
        meaning = f"packets come in only from addresses whose route leaves by {interface}"
    return Finding(f"{interface}: rp_filter", Status.OK, seen, meaning)


def _rp_filter(interface: str) -> int | None:
    """The larger of all and the interface's own counts (Linux, networking/ip-sysctl)."""
    values = [setting("ipv4", "conf", name, "rp_filter") for name in ("all", interface)]
    return max((value for value in values if value is not None), default=None)


def route_findings(local: LocalPath, peer_address: str) -> tuple[Finding, ...]:
    """Of the way from one of our addresses to the peer's address of the same path."""
    try:
        way = egress(peer_address)
    except MachineError as error:
        return (
            Finding(
                "route",
                Status.PROBLEM,
                str(error),
                "nothing leaves on this path",
                "as root, the lines of: mltswitch agent paths --setup",
            ),
        )
    found = [_route(local, peer_address, way.interface)]
    kinds = ", ".join(sorted({entry.kind for entry in way.disciplines})) or "none"
    pacing = Finding("pacing", Status.OK, f"{way.interface} has {kinds}: the kernel paces sockets")
    if not way.kernel_paces:
        meaning = "the agent itself times its bursts: right, but coarser, and it costs processor time"
        remedy = f"as root: tc qdisc replace dev {way.interface} root fq"
        pacing = Finding("pacing", Status.WARNING, f"{way.interface} has {kinds}, not fq", meaning, remedy)
        if ip_address(peer_address).is_loopback:
            pacing = Finding("pacing", Status.OK, "loopback: nothing to pace for")
    return (*found, pacing)


def _route(local: LocalPath, peer_address: str, leaves_by: str) -> Finding:
    owner = interface_with(local.address)
    seen = f"to {peer_address} by {leaves_by}"
    if owner is None or owner == leaves_by or ip_address(peer_address).is_loopback:
        return Finding("route", Status.OK, seen)
    strict = _rp_filter(owner) == STRICT
    meaning = f"our end of the path, {local.address}, is on {owner}"
    if strict:
        meaning += ", whose strict rp_filter drops what the peer sends there"
    return Finding(
        "route",
        Status.PROBLEM if strict else Status.WARNING,
        seen,
        meaning,
        "as root, the lines of: mltswitch agent paths --setup",
    )
