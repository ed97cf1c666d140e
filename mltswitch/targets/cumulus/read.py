"""Reads a Cumulus switch's answers as state.

NVUE's applied configuration holds what somebody has set; what it leaves out has the default of the user guide
(capabilities, CL-D). Edits by hand of the files that NVUE writes do not show here: `nv config apply`
overwrites it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import pairwise
from typing import Final

from mltswitch.capabilities import BitRate, Capabilities, Unlimited
from mltswitch.errors import PreflightError
from mltswitch.targets import base, common
from mltswitch.targets.addresses import ipv4_address, ipv4_network
from mltswitch.targets.base import EgressCounters, Identity, Lossless, RunningState
from mltswitch.targets.common import count_in, json_in, known_form, spectrum_hardware
from mltswitch.targets.cumulus.capabilities import KILOBIT, LARGEST_RATE_KBPS, TRAFFIC_CLASSES
from mltswitch.targets.cumulus.leaves import (
    DISCARD,
    EVERY_PACKET,
    INBOUND,
    MAP_OF,
    PROFILE,
    QUEUE_MAP,
    STATIC,
    access_lists,
    below,
    is_ours,
)
from mltswitch.targets.engine.tree import Path, Tree, at, flatten, nest, printed_leaves
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState, every_dscp_but
from mltswitch.wire.tos import DSCP_COUNT

CONFIG: Final = "nv config show -o json"
PENDING: Final = "nv config diff -o json"
_UNREAD: Final = "unread"
UNSAVED: Final = f"nv config diff startup applied -o json || echo {_UNREAD}"
"""The query for applied changes that are not saved (NVUE reference, Config Commands); it fails where there is
no startup configuration."""
QUERIES: Final = (CONFIG, PENDING, UNSAVED)
SYSTEM: Final = "nv show system -o json"
PLATFORM: Final = "nv show platform -o json"
_COUNTERS: Final = "nv show interface {} counters qos -o json"
_LISTED: Final = frozenset({"interface", "member", "dscp", "pcp", "switch-priority", "traffic-class"})
"""Nodes whose children NVUE may join to a range, `swp1-16`."""
_GLOBAL: Final = "default-global"
"""The profile of ports that have none of their own."""
_CONGESTION_DEFAULTS: Final[Tree] = {
    "ecn": "enable",
    "red": "disable",
    "min-threshold": "150000",
    "max-threshold": "1500000",
    "probability": "100",
}
_OFF: Final = frozenset({"off", "disable", "disabled"})
_PORT_OBJECTS: Final = re.compile(
    "acl|bridge|description|dot1x|evpn|ip|ipv4|ipv6|link|lldp|neighbor|ptp|router|sflow|synce|telemetry|type"
    "|vlan|vrf|qos (congestion-control|egress-scheduler|egress-shaper|link-pause|mapping|pfc|remark) profile"
    "|qos (counter|pfc-watchdog).*"
)
"""Of an interface: links, addresses, bridging, routing (NVUE reference, Interface), and what is read; the
watchdog acts on priorities with PFC alone (CL-D, PFC Watchdog)."""
_QOS: Final = re.compile(
    "congestion-control|egress-(queue-mapping|scheduler|shaper)|link-pause|mapping|pfc|pfc-watchdog|remark|roce"
)


def trees_in(answers: Mapping[str, str], query: str) -> Mapping[str, Tree]:
    """The trees of an answer under `header`, `set` and `unset`, ranges expanded; raises DeviceError.

    The attributes that `nv set` adds to static routes by itself, in some releases, are left out.
    """
    with known_form(query):
        text = answers[query].strip()
        shown = json_in(text) if text or query == CONFIG else []
        trees: dict[str, Tree] = {}
        for part in [shown] if isinstance(shown, dict) else shown:
            for verb, tree in part.items():
                if verb in trees or verb not in {"header", "set", "unset"}:
                    raise ValueError(f"`{verb}` is not known, or stands twice")
                trees[verb] = nest(_without_additions(printed_leaves(tree or {}, _LISTED)))
        return {"header": {}, "set": {}, "unset": {}} | trees


def _without_additions(leaves: Iterable[tuple[Path, str]]) -> Iterator[tuple[Path, str]]:
    for path, value in leaves:
        if path[: len(STATIC)] != STATIC or path[-1] not in {"address-family", "type"}:
            yield path, value
        elif path[-1] == "type":
            # A next hop stays where its type, all that it has, is left out.
            yield path[:-1], ""


def identify(answers: Mapping[str, str]) -> Identity:
    """The identity that the switch reports; raises DeviceError.

    NVIDIA's NVUE reference shows both commands. Before release 5.9 `nv show platform` lists the software
    instead, so serial number and model are not known there.
    """
    with known_form(SYSTEM):
        system = json_in(answers[SYSTEM])
        name, build = str(system["hostname"]), str(system.get("build", ""))
    with known_form(PLATFORM):
        platform = json_in(answers[PLATFORM])
        serial = str(platform.get("serial-number") or platform.get("system-mac", ""))
        return Identity(name, serial, str(platform.get("product-name", "")), build)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """The running state of the wanted ports and queues, and the static routes within the plan.

    Raises DeviceError for what cannot be read, for PFC on a switch priority that the plan uses or that leads
    to a traffic class of the plan, for another access list on a port that rewrites what arrives, and for a
    port in a bond.
    """
    shown = trees_in(answers, CONFIG)
    with known_form(CONFIG):
        lossless = tuple(_lossless(shown["set"], wanted))
        _check_ports(shown["set"], wanted)
        state = state_with(shown["set"], wanted)
        model = str(shown["header"].get("model", ""))
    notes: tuple[str, ...] = ()
    if answers[UNSAVED].strip().endswith(_UNREAD):
        notes = (common.SAVED_UNREAD,)
    elif any(map(trees_in(answers, UNSAVED).get, ("set", "unset"))):
        notes = (common.NOT_SAVED,)
    if wanted.ports and not spectrum_hardware(model):
        notes = (*notes, common.unknown_box(model, capabilities.hardware))
    return RunningState(state, answers, notes, lossless=lossless)


def state_with(config: Tree, wanted: SwitchState) -> SwitchState:
    """The state that a configuration gives the wanted ports, with the static routes within the plan."""
    queues = {port.name: tuple(queue.queue for queue in port.queues) for port in wanted.ports}
    ports = tuple(read_ports(config, queues, wanted.background_dscp))
    own = OwnPrefixes(wanted.routes)
    routes = in_order_of(wanted.routes, (route for route in read_routes(config) if route.prefix in own))
    background_dscp = wanted.background_dscp if any(port.rewritten for port in ports) else 0
    foreign = tuple(_foreign_of_switch(config, wanted)) if ports else ()
    return SwitchState(ports, routes, background_dscp=background_dscp, unexpected=foreign)


def read_ports(
    config: Tree, queues_of: Mapping[str, Sequence[int]], background_dscp: int
) -> Iterator[PortState]:
    """The state of some queues of each port; what no plan asks for is in `unexpected`, in NVUE's words.

    `background_dscp` is what ports should rewrite code points to. Ports with the same profiles and access
    lists are read once.
    """
    known: dict[str, PortState] = {}
    for name, queues in queues_of.items():
        interface = at(config, "interface", name)
        alike = str((interface.get("acl"), interface.get("qos"), queues))
        if alike not in known:
            known[alike] = _read_port(config, name, queues, background_dscp)
        unexpected = (*known[alike].unexpected, *_foreign_of_port(name, interface))
        yield replace(known[alike], name=name, unexpected=unexpected)


def _queue_of(config: Tree, priority: str) -> int:
    """Traffic class of a switch priority."""
    return int(at(config, *QUEUE_MAP, priority).get("traffic-class", priority))


def _priorities(mapping: Tree) -> list[str]:
    """Switch priority of each code point, by a mapping profile that believes it."""
    entries = at(mapping, "dscp")
    return [at(entries, str(dscp)).get("switch-priority", str(dscp >> 3)) for dscp in range(DSCP_COUNT)]


def _profile(config: Tree, port: str, kind: str) -> tuple[str, Tree]:
    """Name and settings of the profile that a port has; without one of its own, that of the whole switch."""
    name = at(config, "interface", port, "qos", kind).get("profile", _GLOBAL)
    return name, at(config, "qos", kind, name)


def _read_port(config: Tree, port: str, queues: Sequence[int], background_dscp: int) -> PortState:
    name, mapping = _profile(config, port, "mapping")
    trusted = mapping.get("trust", "l2") == "l3"
    believed = at(config, "qos", "mapping", MAP_OF.get(name, name if trusted else PROFILE))
    spread = [_queue_of(config, priority) for priority in _priorities(believed)]
    unexpected = [*_faults(config, port, queues)]
    rewritten = _rewritten(config, port, background_dscp, unexpected)
    rates = _rates(config, port, queues, unexpected)
    name, congestion = _profile(config, port, "congestion-control")
    # As delivered: ECN for traffic class 0, with the defaults.
    classes = at(congestion, "traffic-class") or ({"0": {}} if name == _GLOBAL else {})
    states = tuple(
        QueueState(
            queue,
            common.indices_of(spread, queue),
            _threshold(queue, classes, unexpected),
            Unlimited(),
            _rate(rates, queue, "min-rate", no_rate="0"),
            _rate(rates, queue, "max-rate", no_rate=str(LARGEST_RATE_KBPS)),
        )
        for queue in queues
    )
    return PortState(port, trusted, None, states, tuple(unexpected), rewritten)


def _faults(config: Tree, port: str, queues: Sequence[int]) -> Iterator[str]:
    """Settings that lead packets astray, hold them back, or rewrite their code points."""
    name, mapping = _profile(config, port, "mapping")
    trust, default = mapping.get("trust", "l2"), mapping.get("port-default-sp", "0")
    if name not in MAP_OF or trust != ("l3" if MAP_OF[name] == name else "port"):
        yield f"qos mapping profile {name} trust {trust}"
    # Where packets go that have no code point, or none that is trusted.
    if _queue_of(config, default) not in queues[-1:]:
        yield f"qos mapping port-default-sp {default}"
    name, scheduler = _profile(config, port, "egress-scheduler")
    if name != PROFILE:
        yield f"qos egress-scheduler profile {name}"
    for number in range(TRAFFIC_CLASSES):
        fields = at(scheduler, "traffic-class", str(number))
        if name == PROFILE and fields != {"mode": "strict"}:
            yield f"qos egress-scheduler traffic-class {number} {_words(fields)}"
    name, pause = _profile(config, port, "link-pause")
    if name != _GLOBAL or pause:
        yield f"qos link-pause profile {name}"
    rewrite = _profile(config, port, "remark")[1].get("rewrite", "l2")
    if rewrite != "l2":
        yield f"qos remark rewrite {rewrite}"
    roce = at(config, "qos", "roce")
    # Without attributes it is on, too, and it leads other switch priorities to other queues.
    if "roce" in at(config, "qos") and roce.get("enable", roce.get("state", "on")) not in _OFF:
        yield f"qos roce {_words(roce)}".removesuffix(" nothing")
    yield from (f"acl {acl} {way}" for acl, way in _changing_acls(config, port))


def _rewritten(config: Tree, port: str, background_dscp: int, unexpected: list[str]) -> tuple[int, ...]:
    """Code points that our access lists rewrite; whatever else these say, or lack, is unexpected."""
    bound, lists = at(config, "interface", port, "acl"), at(config, "acl")
    own = [name for name in sorted(bound) if is_ours(("acl", name))]
    if not own:
        return ()
    rewritten = every_dscp_but(background_dscp)
    if not any(name.startswith(EVERY_PACKET) for name in own):
        listed = flatten({name: at(lists, name) for _, name in access_lists((), background_dscp)})
        matches = (value for path, value in listed.items() if path[3:] == ("match", "ip", "dscp"))
        rewritten = tuple(sorted({int(value) for value in matches if value.isdecimal()}))
    needed: dict[Path, str] = {}
    for acl, rules in access_lists(rewritten, background_dscp).items():
        needed |= below(acl, rules)
    found = flatten({"acl": {path[1]: at(lists, path[1]) for path in needed}})
    found |= flatten({"acl": {name: bound[name] for name in own}})
    needed |= {(*path[:2], INBOUND): "" for path in needed}
    unexpected += (f"no {' '.join(path)}" for path in needed if path not in found)
    others = ((path, value) for path, value in found.items() if needed.get(path) != value)
    unexpected += (f"{' '.join(path)} {value}".rstrip() for path, value in others)
    return rewritten


def _rates(config: Tree, port: str, queues: Sequence[int], unexpected: list[str]) -> Tree:
    """Traffic class → its rates; whatever is not a rate of a queue of ours is unexpected."""
    name, profile = _profile(config, port, "egress-shaper")
    if not is_ours(("qos", "egress-shaper", name)):
        unexpected += [f"qos egress-shaper profile {name}"] if name != _GLOBAL or profile else []
        return {}
    ours = {("traffic-class", str(queue), f"{end}-rate") for queue in queues for end in ("min", "max")}
    others = ((path, value) for path, value in flatten(profile).items() if path not in ours)
    unexpected += (f"qos egress-shaper {' '.join(path)} {value}".rstrip() for path, value in others)
    return at(profile, "traffic-class")


def _threshold(queue: int, classes: Tree, unexpected: list[str]) -> int | None:
    if str(queue) not in classes:
        return None
    entry = _CONGESTION_DEFAULTS | classes[str(queue)]
    if entry["ecn"] == entry["red"] == "disable":
        return None
    if entry.keys() - _CONGESTION_DEFAULTS.keys():
        unexpected.append(f"qos congestion-control traffic-class {queue} {_words(entry)}")
        return None
    low, high = int(entry["min-threshold"]), int(entry["max-threshold"])
    if entry["ecn"] == entry["red"] == "enable" and low == high and entry["probability"] == "100":
        return low
    unexpected.append(f"qos congestion-control traffic-class {queue} {_words(entry)}")
    return None


def _rate(rates: Tree, queue: int, field: str, *, no_rate: str) -> BitRate | None:
    kbps = at(rates, str(queue)).get(field, no_rate)
    return None if kbps == no_rate else BitRate(int(kbps) * KILOBIT)


def _words(fields: Tree) -> str:
    return " ".join(f"{name} {value}" for name, value in fields.items()) or "nothing"


def _foreign_acls(config: Tree, interface: str) -> Iterator[tuple[str, str]]:
    """(name, direction) of other access lists of an interface, but for those of the control plane."""
    for name, directions in at(config, "interface", interface, "acl").items():
        if not is_ours(("acl", name)) and isinstance(directions, Mapping):
            yield from ((name, way) for way in directions if "control-plane" not in at(directions, way))


def _changing_acls(config: Tree, interface: str) -> Iterator[tuple[str, str]]:
    """Those of them that rewrite, reclassify or police packets."""
    for name, way in _foreign_acls(config, interface):
        rules = at(config, "acl", name, "rule")
        if any({"set", "police"} & at(rules, number, "action").keys() for number in rules):
            yield name, way


def _foreign_of_port(port: str, interface: Tree) -> Iterator[str]:
    for path, value in flatten(interface).items():
        if not _PORT_OBJECTS.fullmatch(" ".join(path[:3]) if path[0] == "qos" else path[0]):
            yield f"interface {port} {' '.join(path)} {value}".rstrip()


def _foreign_of_switch(config: Tree, wanted: SwitchState) -> Iterator[str]:
    """Objects of `qos` that nobody here knows, but for those of classes that are not the plan's; and what
    access lists of VLANs, and of interfaces above a port (`swp1.7`), do to packets of the ports."""
    planned = {str(queue.queue) for port in wanted.ports for queue in port.queues}
    unknown = {name: tree for name, tree in at(config, "qos").items() if not _QOS.fullmatch(name)}
    leaves = flatten(unknown)
    named_in: dict[Path, set[str]] = {}
    for path in leaves:
        found = named_in.setdefault(path[:2] if path[0] == "traffic-pool" else path, set())
        found |= {number for word, number in pairwise(path) if word in {"traffic-class", "switch-priority"}}
    for path, value in leaves.items():
        named = named_in[path[:2] if path[0] == "traffic-pool" else path]
        if not named or named & planned:
            yield f"qos {' '.join(path)} {value}".rstrip()
    beginnings = tuple(f"{port.name}." for port in wanted.ports)
    if any(at(config, "interface", port.name, "bridge") for port in wanted.ports):
        beginnings = ("vlan", *beginnings)
    for name in at(config, "interface"):
        for acl, way in _changing_acls(config, name) if name.startswith(beginnings) else ():
            if way == INBOUND:
                yield f"interface {name} acl {acl} {way}"


def network_of(name: str) -> IPv4Network | None:
    """The IPv4 prefix whose text is the name of a static route; None for IPv6."""
    try:
        return ipv4_network(name, strict=False)
    except ValueError:
        return None


def read_routes(config: Tree) -> Iterator[RouteState]:
    """One route of the default VRF for each next hop; `port` holds whatever else the route says."""
    for name, route in at(config, *STATIC).items():
        if (prefix := network_of(name)) is None:
            continue
        others = [f"{key} {value}" for key, value in dict(route).items() if key not in {"via", "distance"}]
        for distance, group in [("", route), *at(route, "distance").items()]:
            for hop, via in at(group, "via").items():
                words = [f"distance {distance}"] if distance else []
                words += [*(f"{key} {value}" for key, value in via.items()), *others]
                try:
                    yield RouteState(prefix, ipv4_address(hop), " ".join(words))
                except ValueError:  # an interface, or a blackhole
                    found = RouteState(prefix, common.NO_NEXT_HOP, " ".join([hop, *words]))
                    yield common.as_discarding(found, DISCARD)


def _led_to(config: Tree, port: str, priority: int) -> tuple[tuple[int, ...], str]:
    """Code points that a port leads to a switch priority now, and the setting that does without them."""
    name, mapping = _profile(config, port, "mapping")
    trust = mapping.get("trust", "l2")
    is_left = trust == "port" and mapping.get("port-default-sp", "0") != str(priority)
    otherwise = "" if is_left or trust == "l3" else f"qos mapping {name} trust {trust}"
    leads = _priorities(mapping) if trust in {"l3", "both"} else []
    return common.indices_of(leads, str(priority)), otherwise


def _lossless(config: Tree, wanted: SwitchState) -> Iterator[Lossless]:
    """Priorities with PFC that the plan leaves alone; raises PreflightError for others."""
    for port in wanted.ports:
        queues = {queue.queue for queue in port.queues}
        _, profile = _profile(config, port.name, "pfc")
        if all(profile.get(direction, "enable") in _OFF for direction in ("rx", "tx")):
            continue
        for priority in sorted(map(int, at(profile, "switch-priority"))):
            # The plan leads its own switch priorities to the classes of their numbers, and moves no other.
            traffic_class = _queue_of(config, str(priority))
            if priority in queues:
                use = "which the plan uses"
            elif traffic_class in queues:
                use = f"which leads to traffic class {traffic_class} of the plan"
            else:
                yield Lossless(port.name, priority, *_led_to(config, port.name, priority))
                continue
            raise PreflightError(
                f"PFC is on for switch priority {priority}, {use}: RED on a lossless queue drops "
                "packets that are not ECN-capable",
                where=f"port {port.name}",
                hint="take the priority out of the port's PFC profile first, with nv unset qos pfc",
            )


def _check_ports(config: Tree, wanted: SwitchState) -> None:
    for port in wanted.ports:
        # Somebody's deny rule behind our rule for every packet would no longer act.
        for name, direction in _foreign_acls(config, port.name):
            if port.rewritten and direction == INBOUND:
                raise PreflightError(
                    f"has the access list {name} inbound, as the plan's own has to be: of the rules of both, "
                    "only the first acts that matches a packet",
                    where=f"port {port.name}",
                    hint=f"take it off the port first, with nv unset interface {port.name} acl {name}",
                )
        for name, interface in at(config, "interface").items():
            if port.name in at(interface, "bond", "member"):
                raise PreflightError(
                    f"is a member of {name}: nobody has told whose queues and maps count then",
                    where=f"port {port.name}",
                    hint=f"take it out first, with nv unset interface {name} bond member {port.name}",
                )


def _counter_queries(ports: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(_COUNTERS.format, ports))


def _read_counters(answers: Mapping[str, str], places: Iterable[base.QueuePlace]) -> base.QueueCounters:
    """The counters of queues; releases and chips that count no marks by class tell none.

    NVUE's object `interface counters qos egress-queue-stats` (Cumulus Linux user guide, Quality of Service).
    Its table prints `tx-uc-buffer-discards` with a unit of bytes, but they are frames. Raises DeviceError.
    """
    counters: dict[base.QueuePlace, EgressCounters] = {}
    for port, queue in places:
        query = _COUNTERS.format(port)
        with known_form(query):
            found = json_in(answers[query])["egress-queue-stats"][str(queue)]
            dropped = [count_in(found.get(name)) for name in ("tx-uc-buffer-discards", "wred-discards")]
            counters[port, queue] = EgressCounters(
                sent_bytes=count_in(found.get("tx-bytes")),
                sent_packets=count_in(found["tx-frames"]),
                dropped_packets=None if None in dropped else sum(filter(None, dropped)),
                ce_marked_packets=count_in(found.get("ecn-marked-frames")),
                dropped_at_threshold_packets=dropped[1],
            )
    return counters


COUNTER_SOURCE: Final = base.CounterSource(_counter_queries, _read_counters, common.POLL_SECONDS)
