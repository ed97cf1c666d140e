"""What an NVUE configuration, ours or a device's, means as state.

What a configuration does not say has the default of the user guide (capabilities, CL-D).
"""

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from typing import Any, Final

from mltswitch.capabilities import BitRate, Unlimited
from mltswitch.targets.addresses import ipv4_address, ipv4_network
from mltswitch.targets.common import NO_NEXT_HOP, as_discarding, indices_of
from mltswitch.targets.cumulus.capabilities import KILOBIT, LARGEST_RATE_KBPS, TRAFFIC_CLASSES
from mltswitch.targets.cumulus.document import CERTAIN, DISCARD, MAP_OF, PROFILE, STATIC
from mltswitch.targets.cumulus.ingress import changes_packets, foreign_acls, rewriting_of
from mltswitch.targets.cumulus.leaves import Tree, at
from mltswitch.targets.state import PortState, QueueState, RouteState
from mltswitch.wire.tos import DSCP_COUNT

GLOBAL: Final = "default-global"
"""The profile of ports that have none of their own."""

_CODE_POINT_BITS: Final = 3
"""Eight code points in a row have one switch priority: 8 to 15 have 1."""
_CONGESTION_DEFAULTS: Final = {
    "ecn": "enable",
    "red": "disable",
    "min-threshold": "150000",
    "max-threshold": "1500000",
    "probability": CERTAIN,
}
_GLOBAL_CONGESTION: Final[Tree] = {"0": {}}
"""As delivered: ECN for traffic class 0, with the defaults."""
OWN_PROFILE: Final = re.compile(r"mlt-swp[0-9]{1,3}(?:s[0-7])?")
"""Names of the profiles for congestion control and shaping."""
_NO_MINIMUM: Final = "0"
_NO_MAXIMUM: Final = str(LARGEST_RATE_KBPS)
_OFF: Final = frozenset({"off", "disable", "disabled"})


def queues_of(config: Tree, port: str) -> list[int]:
    """Traffic classes that a port's own congestion profile names, served first first."""
    profile = at(config, "interface", port, "qos", "congestion-control").get("profile", "")
    return sorted(map(int, at(config, "qos", "congestion-control", profile, "traffic-class")), reverse=True)


def lossless_priorities(config: Tree, port: str) -> set[int]:
    """Switch priorities for which PFC may hold packets back on a port; raises ValueError."""
    name = at(config, "interface", port, "qos", "pfc").get("profile", GLOBAL)
    profile = at(config, "qos", "pfc", name)
    if all(profile.get(direction, "enable") in _OFF for direction in ("rx", "tx")):
        return set()
    return {int(priority) for priority in at(profile, "switch-priority")}


def routes_of(prefix: IPv4Network, route: Tree) -> Iterator[RouteState]:
    """One route for each next hop; `port` holds whatever else the route says. Raises ValueError."""
    others = [f"{name} {route[name]}" for name in route if name not in {"address-family", "via", "distance"}]
    for distance, group in [("", route), *at(route, "distance").items()]:
        for hop, via in at(group, "via").items():
            extra = [f"distance {distance}"] if distance else []
            extra += [f"{name} {via[name]}" for name in via if name != "type"]
            try:
                yield RouteState(prefix, ipv4_address(hop), " ".join([*extra, *others]))
            except ValueError:  # an interface, or a blackhole
                found = RouteState(prefix, NO_NEXT_HOP, " ".join([hop, *extra, *others]))
                yield as_discarding(found, DISCARD)


def static_routes(config: Tree) -> Iterator[tuple[IPv4Network, str, Tree]]:
    """(prefix, its name on the device, route) of the default VRF; IPv6 is left out."""
    for name, route in at(config, *STATIC).items():
        try:
            yield ipv4_network(name, strict=False), name, dict(route or {})
        except ValueError:
            continue


class Interpreter:
    """Reads the ports of one configuration, which must not change meanwhile."""

    def __init__(self, config: Tree, background_dscp: int) -> None:
        self._config = config
        self.background_dscp = background_dscp
        """What ports should rewrite code points to."""
        self._queue_map = at(config, "qos", "egress-queue-mapping", GLOBAL, "switch-priority")
        self._spread: dict[str, dict[int, tuple[int, ...]]] = {}
        self._read: list[tuple[Tree, Sequence[int], PortState]] = []
        """(what a port is bound to, its queues, its state): few kinds, so that they are looked through."""

    def port_state(self, port: str, queues: Sequence[int]) -> PortState:
        """State of some queues of one port; what no plan asks for is in `unexpected`, in NVUE's words."""
        bound = {kind: at(self._config, "interface", port, kind) for kind in ("acl", "qos")}
        for known_bound, known_queues, like in self._read:
            if known_bound == bound and known_queues == queues:
                same = (like.trusted, like.shaped_bps, like.queues, like.unexpected, like.rewritten)
                return PortState(port, *same)
        state = _PortReader(self, self._config, port).state(queues)
        self._read.append((bound, queues, state))
        return state

    def queue_of(self, priority: str) -> int:
        """Traffic class of a switch priority."""
        return int(at(self._queue_map, priority).get("traffic-class", priority))

    def led_to(self, port: str, priority: int) -> tuple[tuple[int, ...], str]:
        """Code points that a port leads to a switch priority now, and the setting that does without them."""
        name = at(self._config, "interface", port, "qos", "mapping").get("profile", GLOBAL)
        mapping = at(self._config, "qos", "mapping", name)
        trust = mapping.get("trust", "l2")
        is_left = trust == "port" and str(mapping.get("port-default-sp", "0")) != str(priority)
        otherwise = "" if is_left or trust == "l3" else f"qos mapping {name} trust {trust}"
        if trust not in {"l3", "both"}:
            return (), otherwise
        entries = at(mapping, "dscp")
        leads_to = (
            at(entries, str(dscp)).get("switch-priority", str(dscp >> _CODE_POINT_BITS))
            for dscp in range(DSCP_COUNT)
        )
        return indices_of(leads_to, str(priority)), otherwise

    def spread(self, mapping: str) -> dict[int, tuple[int, ...]]:
        """Queue → code points, by the mapping profile of this name."""
        if mapping not in self._spread:
            entries = at(self._config, "qos", "mapping", mapping, "dscp")
            found: dict[int, list[int]] = {}
            for dscp in range(DSCP_COUNT):
                default = str(dscp >> _CODE_POINT_BITS)
                priority = at(entries, str(dscp)).get("switch-priority", default)
                found.setdefault(self.queue_of(str(priority)), []).append(dscp)
            self._spread[mapping] = {queue: tuple(dscps) for queue, dscps in found.items()}
        return self._spread[mapping]


class _PortReader:
    def __init__(self, whole: Interpreter, config: Tree, port: str) -> None:
        self._whole = whole
        self._config = config
        self._qos = at(config, "qos")
        self._bound = at(config, "interface", port, "qos")
        self._port = port
        self._unexpected: list[str] = []

    def state(self, queues: Sequence[int]) -> PortState:
        trusted = self._trusted()
        name = self._profile("mapping")
        spread = self._whole.spread(MAP_OF.get(name, name if trusted else PROFILE))
        self._check_default(queues)
        self._check_scheduler()
        self._check_others()
        rewritten, faults = rewriting_of(self._config, self._port, self._whole.background_dscp)
        self._unexpected += faults
        congestion = self._congestion()
        shaper = self._shaper(queues)
        states = tuple(
            QueueState(
                queue,
                spread.get(queue, ()),
                self._threshold(queue, congestion.get(str(queue))),
                Unlimited(),
                _rate(at(shaper, str(queue)).get("min-rate", _NO_MINIMUM), _NO_MINIMUM),
                _rate(at(shaper, str(queue)).get("max-rate", _NO_MAXIMUM), _NO_MAXIMUM),
            )
            for queue in queues
        )
        return PortState(self._port, trusted, None, states, tuple(self._unexpected), rewritten)

    def _profile(self, kind: str) -> str:
        return str(at(self._bound, kind).get("profile", GLOBAL))

    def _trusted(self) -> bool:
        name = self._profile("mapping")
        trust = at(self._qos, "mapping", name).get("trust", "l2")
        if name not in MAP_OF or trust != ("l3" if MAP_OF[name] == name else "port"):
            self._unexpected.append(f"qos mapping profile {name} trust {trust}")
        return bool(trust == "l3")

    def _check_default(self, queues: Sequence[int]) -> None:
        """Where packets go that have no code point, or none that is trusted."""
        priority = str(at(self._qos, "mapping", self._profile("mapping")).get("port-default-sp", "0"))
        if self._whole.queue_of(priority) not in queues[-1:]:
            self._unexpected.append(f"qos mapping port-default-sp {priority}")

    def _check_scheduler(self) -> None:
        name = self._profile("egress-scheduler")
        if name != PROFILE:
            self._unexpected.append(f"qos egress-scheduler profile {name}")
        classes = at(self._qos, "egress-scheduler", name, "traffic-class")
        for number in range(TRAFFIC_CLASSES):
            fields = at(classes, str(number))
            if name == PROFILE and fields != {"mode": "strict"}:
                self._unexpected.append(f"qos egress-scheduler traffic-class {number} {_words(fields)}")

    def _check_others(self) -> None:
        """Settings that hold packets back, rewrite their code points, or configure QoS in another way."""
        pause = self._profile("link-pause")
        if pause != GLOBAL or at(self._qos, "link-pause", pause):
            self._unexpected.append(f"qos link-pause profile {pause}")
        rewrite = at(self._qos, "remark", self._profile("remark")).get("rewrite", "")
        if rewrite not in {"", "l2"}:
            self._unexpected.append(f"qos remark rewrite {rewrite}")
        roce = at(self._qos, "roce")
        # Without attributes it is on, too, and it leads other switch priorities to other queues.
        if "roce" in self._qos and roce.get("enable", roce.get("state", "on")) not in _OFF:
            self._unexpected.append(f"qos roce {_words(roce)}".removesuffix(" nothing"))
        for name, direction in foreign_acls(self._config, self._port):
            if changes_packets(self._config, name):
                self._unexpected.append(f"acl {name} {direction}")

    def _shaper(self, queues: Sequence[int]) -> Tree:
        """Traffic class → its rates; whatever is not a rate of a queue of ours is unexpected."""
        name = self._profile("egress-shaper")
        profile = at(self._qos, "egress-shaper", name)
        if not OWN_PROFILE.fullmatch(name):
            if name != GLOBAL or profile:
                self._unexpected.append(f"qos egress-shaper profile {name}")
            return {}
        classes = at(profile, "traffic-class")
        foreign = {field: value for field, value in profile.items() if field != "traffic-class"}
        foreign |= {
            f"traffic-class {each}": _words(at(classes, each))
            for each in classes
            if each not in map(str, queues)
        }
        self._unexpected += (f"qos egress-shaper {field} {value}" for field, value in foreign.items())
        return classes

    def _congestion(self) -> Tree:
        name = self._profile("congestion-control")
        default = _GLOBAL_CONGESTION if name == GLOBAL else {}
        return at(self._qos, "congestion-control", name, "traffic-class") or default

    def _threshold(self, queue: int, fields: Tree | None) -> int | None:
        if fields is None:
            return None
        entry: dict[str, Any] = _CONGESTION_DEFAULTS | fields
        if entry["ecn"] == entry["red"] == "disable":
            return None
        low, high = int(entry["min-threshold"]), int(entry["max-threshold"])
        if entry["ecn"] == entry["red"] == "enable" and low == high and entry["probability"] == CERTAIN:
            return low
        self._unexpected.append(f"qos congestion-control traffic-class {queue} {_words(entry)}")
        return None


def _rate(kbps: str, none: str) -> BitRate | None:
    return None if kbps == none else BitRate(int(kbps) * KILOBIT)


def _words(fields: Tree) -> str:
    return " ".join(f"{name} {value}" for name, value in fields.items()) or "nothing"
