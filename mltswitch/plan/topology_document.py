"""The part of a fabric file that says what is cabled to what, and which addresses it has."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Network
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, StrictInt, model_validator

from mltswitch.capabilities import PortNumbering
from mltswitch.documents import SparseDocument
from mltswitch.units import parse_bps

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
NamePattern = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}(\[[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*\])?$"
    ),
]
"""The name of a node or several: `leaf3`, `leaf[1-4]` or `leaf[1-4,7]`."""
PortName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9/_.-]{0,31}$")]
PortReference = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}:[A-Za-z0-9][A-Za-z0-9/_.-]{0,31}$")
]
RateBps = Annotated[int, Field(gt=0), BeforeValidator(parse_bps, json_schema_input_type=int | str)]
DelaySeconds = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]
Breakout = Annotated[StrictInt, Field(ge=1, le=8)]
"""Ports into which one port of the box is broken out; 1: it is whole."""


def _text_of(kind: type, what: str, example: str) -> Callable[[Any], Any]:
    """A check that lets no number be taken for an address."""

    def check(value: Any) -> Any:
        if isinstance(value, str | kind) and ("/" in str(value) or "/" not in example):
            return value
        raise ValueError(f"is no {what}, write for example {example}")

    return check


_check_prefix = _text_of(IPv4Network, "prefix", "10.10.0.0/16")
Prefix = Annotated[IPv4Network, BeforeValidator(_check_prefix)]
Interface = Annotated[
    IPv4Interface, BeforeValidator(_text_of(IPv4Interface, "address with its prefix's length", "10.1.2.3/24"))
]
Address = Annotated[IPv4Address, BeforeValidator(_text_of(IPv4Address, "address", "10.1.2.1"))]


def _check_alias(value: Any) -> Any:
    return value if isinstance(value, dict) else _check_prefix(value)


def _is_unicast(prefix: IPv6Network) -> bool:
    return any(map(prefix.subnet_of, UNICAST))


def _check_block(value: Any) -> Any:
    with suppress(ValueError):
        block = IPv6Network(value) if isinstance(value, str) else value
        if isinstance(block, IPv6Network) and block.prefixlen == SEGMENT_BLOCK_BITS and _is_unicast(block):
            return block
    raise ValueError("is no unicast IPv6 prefix of 32 bits, write for example fd00:6d6c::/32")


SegmentBlock = Annotated[IPv6Network, BeforeValidator(_check_block)]

SEGMENT_BLOCK_BITS: Final = 32
UNICAST: Final = (IPv6Network("fc00::/7"), IPv6Network("2000::/3"))
"""The unicast IPv6 prefixes: unique local (RFC 4193) and global (RFC 4291)."""
UNUSABLE_PREFIXES: Final = {
    IPv4Network("0.0.0.0/8"): "this network",
    IPv4Network("127.0.0.0/8"): "loopback",
    IPv4Network("169.254.0.0/16"): "link-local",
    IPv4Network("224.0.0.0/3"): "multicast and reserved",
}
"""Prefixes that no link and no host may have its address in (RFC 6890)."""


class SwitchRole(StrEnum):
    """Tier of a switch: hosts are below leaves; cores join pods of leaves and spines."""

    LEAF = "leaf"
    SPINE = "spine"
    CORE = "core"


class PortRole(StrEnum):
    """What an egress port serves; ports of one role and rate share their thresholds."""

    LEAF_DOWN = "leaf-down"
    """A leaf's port to a host, where incast meets."""
    LEAF_UP = "leaf-up"
    SPINE_DOWN = "spine-down"
    SPINE_UP = "spine-up"
    CORE_DOWN = "core-down"


class SwitchModel(SparseDocument):
    """Switch OS and box of some switches; in a file also as `sonic` or `sonic/sn2700`."""

    platform: Name
    hardware: Name | None = None
    port_names: PortNumbering | None = None
    """By default as the box names its ports."""


def _check_model(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    platform, slash, hardware = value.partition("/")
    return {"platform": platform} | ({"hardware": hardware} if slash else {})


class SwitchGroup(SparseDocument):
    """Switches of one tier: of one model, but for those that `models` names by patterns."""

    count: StrictInt = Field(ge=1, le=4096)
    """Of each pod, except for cores."""
    platform: Name | None = None
    hardware: Name | None = None
    name: Annotated[Name, Field(max_length=32)] | None = None
    """Prefix of the names; the tier's own name by default: leaf1, leaf2, …."""
    port_names: PortNumbering | None = None
    models: dict[NamePattern, Annotated[SwitchModel, BeforeValidator(_check_model)]] = Field(default={})
    """`leaf[1-4]: sonic/sn2700`; where no switch is left, nothing else need be said."""

    @model_validator(mode="after")
    def _has_models(self) -> Self:
        if self.platform is None and (not self.models or self.hardware or self.port_names):
            raise ValueError("needs a platform, or models alone")
        seen = Counter(name for pattern in self.models for name in names_of(pattern))
        for name, count in seen.most_common(1):
            if count > 1:
                raise ValueError(f"models: two patterns name {name}")
        return self

    @property
    def default_model(self) -> SwitchModel | None:
        """The model of the group's switches that no pattern names; None: the group has none."""
        if self.platform is None:
            return None
        return SwitchModel(platform=self.platform, hardware=self.hardware, port_names=self.port_names)

    def models_by_name(self) -> dict[str, SwitchModel]:
        """The model of each switch that a pattern names, by the switch's name."""
        return {name: model for pattern, model in self.models.items() for name in names_of(pattern)}


MOST_NAMES: Final = 4096
"""The most switch names that one pattern may stand for."""


def names_of(pattern: str) -> list[str]:
    """The names that a NamePattern stands for: leaf1 and leaf2 of `leaf[1-2]`; raises ValueError."""
    prefix, bracket, listed = pattern.removesuffix("]").partition("[")
    if not bracket:
        return [pattern]
    ranges: list[range] = []
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if int(last or first) < int(first):
            raise ValueError(f"{pattern[:40]}: {part} runs backwards")
        ranges.append(range(int(first), int(last or first) + 1))
        if sum(map(len, ranges)) > MOST_NAMES:
            raise ValueError(f"{pattern[:40]}: stands for more than {MOST_NAMES} names")
    return [f"{prefix}{number}" for numbers in ranges for number in numbers]


class HostPorts(SparseDocument):
    """Leaf ports to hosts."""

    rate_bps: RateBps | None = Field(default=None, alias="rate")
    """By default that of `ports`."""
    delay_seconds: DelaySeconds = Field(default=0.0, alias="delay")
    """A bit's way through one cable [s]; only `mltswitch simulate` reads it."""
    breakout: Breakout = 1
    """Ports out of each port of the box; a machine's ports (linux, bmv2) are taken as they are."""


class TierLinks(HostPorts):
    """Links between two tiers; `breakout` is that of the lower switch's ports."""

    breakout_above: Breakout = 1
    """Of the upper switch's ports."""
    parallel: StrictInt = Field(default=1, ge=1, le=64)
    """Links between each two switches."""
    lag: bool = False
    """Whether parallel links are one link aggregation group, hence one path; else each is a path."""

    @model_validator(mode="after")
    def _has_links_for_a_group(self) -> Self:
        if self.lag and self.parallel == 1:
            raise ValueError("lag: true needs parallel links, 2 or more")
        return self


class LeafSpine(SparseDocument):
    """Every leaf has links to every spine of its pod; every leaf has the same number of hosts' ports.

    With cores, core c of C is linked to spine c·S // C of the S spines of each pod: planes.
    """

    spines: SwitchGroup
    leaves: SwitchGroup
    hosts_per_leaf: StrictInt = Field(ge=0, le=4096)
    rails: StrictInt = Field(default=1, ge=1, le=64)
    """Ports of each host, one to each of so many consecutive leaves: eth0, eth1, …."""
    pods: StrictInt = Field(default=1, ge=1, le=1024)
    cores: SwitchGroup | None = None
    """Third tier, which joins the pods."""
    host_ports: HostPorts = HostPorts()
    uplinks: TierLinks = TierLinks()
    """Leaf to spine."""
    core_links: TierLinks = TierLinks()
    """Spine to core."""

    @model_validator(mode="after")
    def _is_regular(self) -> Self:
        if self.pods > 1 and self.cores is None:
            raise ValueError(f"{self.pods} pods need cores that join them")
        if self.cores is None and self.core_links != TierLinks():
            raise ValueError("core_links: there are no cores")
        if self.leaves.count % self.rails:
            raise ValueError(f"rails: {self.leaves.count} leaves in groups of {self.rails} leave some over")
        if self.cores is not None and self.cores.count % self.spines.count:
            raise ValueError(f"cores: {self.cores.count} are no multiple of {self.spines.count} spines")
        return self


class SwitchEntry(SparseDocument):
    """One switch, listed by name."""

    name: Name
    role: SwitchRole
    platform: Name
    hardware: Name | None = None


class HostAddress(SparseDocument):
    """Address of a host's port, for a rack that has addresses; by default it follows the rule."""

    address: Interface | None = None
    gateway: Address | None = None
    """The leaf's address towards the host; None: the document names none."""
    vlan: Annotated[StrictInt, Field(ge=1, le=4094)] | None = None
    """Of the leaf's port, with `qos_only` alone: no static route leads through a VLAN's interface."""

    @model_validator(mode="after")
    def _gateway_is_a_neighbour(self) -> Self:
        if self.gateway is not None and (
            self.address is None
            or self.gateway not in self.address.network
            or self.gateway == self.address.ip
        ):
            raise ValueError(f"gateway {self.gateway} is no other address of the host's network")
        if self.address is not None and any(self.address.ip in prefix for prefix in UNUSABLE_PREFIXES):
            raise ValueError(f"address {self.address.ip} cannot be a host's")
        return self


class HostEntry(HostAddress):
    """One host, listed by name, or the addresses of one that is generated."""

    name: Name
    interfaces: dict[PortName, HostAddress] = Field(default={})
    """Addresses of a host with several ports, by the names of its interfaces."""

    def address_of(self, interface: str) -> HostAddress:
        """The address that the entry gives for one of the host's ports."""
        return self.interfaces.get(interface, self)


class LinkEntry(SparseDocument):
    """One cable; a host's end needs no port name of a switch, but has one all the same (its interface)."""

    a: PortReference
    b: PortReference
    rate_bps: RateBps | None = Field(default=None, alias="rate")
    """By default that of `ports`, for the ports' role."""
    delay_seconds: DelaySeconds = Field(default=0.0, alias="delay")
    """A bit's way through the cable [s]."""
    breakout_a: Breakout = 1
    """How the box's port at this end is broken out, where the port's name does not say that it is."""
    breakout_b: Breakout = 1
    lag_a: PortName | None = None
    """Link aggregation group of this end; links with the same names are one path, with one address."""
    lag_b: PortName | None = None

    @model_validator(mode="after")
    def _lag_has_two_ends(self) -> Self:
        if (self.lag_a is None) != (self.lag_b is None):
            raise ValueError("lag_a and lag_b belong together")
        return self


class TopologyDocument(SparseDocument):
    """A generated leaf-spine, listed switches and links, or both: lists extend what is generated."""

    leaf_spine: LeafSpine | None = None
    switches: tuple[SwitchEntry, ...] = ()
    hosts: tuple[HostEntry, ...] = ()
    links: tuple[LinkEntry, ...] = ()

    @model_validator(mode="after")
    def _has_switches(self) -> Self:
        if self.leaf_spine is None and not self.switches:
            raise ValueError("needs leaf_spine, or switches and links")
        return self


class Addressing(SparseDocument):
    """Address rules: `address = prefix + host index`; a host's index is leaf number · leaf_stride + place."""

    hosts: Prefix | None = None
    """One /30 per host: leaf port .1, host .2; needed where a host has no address of its own."""
    links: Prefix | None = None
    """One /30 per link between switches: lower .1, upper .2; needed where routes are rendered."""
    alias: Annotated[dict[Name, Prefix] | Prefix | None, BeforeValidator(_check_alias)] = None
    """Path → prefix; an address below it reaches its host by that path. Or one prefix for all paths.

    A path is named by its spine, between pods by its core; the second of parallel links by `spine1.2`.
    """
    segments: SegmentBlock | None = None
    """SRv6 locators, hosts and links (plan/segments.py): an IPv6 /32, for `spraying.mode: srv6` alone."""
    leaf_stride: StrictInt = Field(default=64, ge=2)
    """Host indices reserved for each leaf, a power of two, so that a spine needs one route per leaf."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.leaf_stride & (self.leaf_stride - 1):
            raise ValueError(f"leaf_stride {self.leaf_stride} is not a power of two")
        named = [("hosts", self.hosts), ("links", self.links)]
        if isinstance(self.alias, dict):
            named += [(f"alias.{path}", prefix) for path, prefix in self.alias.items()]
        else:
            named.append(("alias", self.alias))
        given = [(name, prefix) for name, prefix in named if prefix is not None]
        for name, prefix in given:
            for unusable, meaning in UNUSABLE_PREFIXES.items():
                if prefix.overlaps(unusable):
                    raise ValueError(f"{name} {prefix} overlaps {unusable}, which is {meaning}")
        for position, (name, prefix) in enumerate(given):
            for other_name, other in given[:position]:
                if prefix.overlaps(other):
                    raise ValueError(f"{name} {prefix} overlaps {other_name} {other}")
        return self
