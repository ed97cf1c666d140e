"""What a CONFIG_DB, ours or a device's, means as state; objects count by their contents, not their names."""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from mltswitch.capabilities import AlphaLimit, Limit, Unlimited
from mltswitch.targets.sonic.database import Database, Entry, Value, entries_of
from mltswitch.targets.sonic.document import (
    MAP,
    STRICT,
    TC_TO_PRIORITY_GROUP,
    UNTRUSTED_MAP,
    VRF,
    buffer_fields,
    port_maps,
    untrusted_map,
    wred_fields,
)
from mltswitch.targets.state import PortState, QueueState, RouteState
from mltswitch.wire.tos import DSCP_COUNT

_PORT_FIELDS: Final = frozenset(
    {
        *port_maps(trusted=True),
        *("pfc_to_queue_map", "pfc_to_pg_map", "pfc_enable", "pfcwd_sw_enable"),
    }
)
"""Of PORT_QOS_MAP: ours, and those of PFC, which the other queues keep."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")
_NO_NEXT_HOP: Final = IPv4Address(0)


def port_state(database: Database, port: str, queues: Sequence[int]) -> PortState:
    """State of some queues of one port; what no plan asks for is in `unexpected`, in SONiC's words."""
    return _PortReader(database, port).state(queues)


def lossless_queues(database: Database, port: str) -> set[int]:
    """Queues of a port in which PFC may hold packets back."""
    fields = database.get("PORT_QOS_MAP", {}).get(port, {})
    bound = fields.get("pfc_to_queue_map")
    leads_to = database.get("MAP_PFC_PRIORITY_TO_QUEUE", {}).get(bound, {}) if isinstance(bound, str) else {}
    queues = (_number(leads_to.get(word, word)) for word in _words(fields.get("pfc_enable", "")))
    return {queue for queue in queues if queue is not None}


def route_of(key: str) -> IPv4Network | None:
    """Prefix of a key of STATIC_ROUTE in the default VRF; None for other routes."""
    vrf, _, prefix = key.rpartition("|")
    try:
        return IPv4Network(prefix, strict=False) if vrf in {"", VRF} else None
    except ValueError:
        return None


def routes_of(key: str, fields: Entry) -> Iterable[RouteState]:
    """One route for each next hop; `port` holds whatever else the entry says, too."""
    prefix = route_of(key)
    if prefix is None:
        return
    next_hops, ports = _words(fields.get("nexthop", "")), _words(fields.get("ifname", ""))
    others = [f"{name} {_text(value)}" for name, value in fields.items() if name not in {"nexthop", "ifname"}]
    for index, next_hop in enumerate(next_hops):
        port = ports[index] if index < len(ports) else ""
        yield RouteState(prefix, _address(next_hop), " ".join((port, *others)))


def _words(value: Value) -> list[str]:
    return _text(value).split(",")


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ",".join(value)


def _address(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except ValueError:
        return _NO_NEXT_HOP


class _PortReader:
    def __init__(self, database: Database, port: str) -> None:
        self._database = database
        self._port = port
        self._maps = database.get("PORT_QOS_MAP", {}).get(port, {})
        self._unexpected: list[str] = []

    def state(self, queues: Sequence[int]) -> PortState:
        trusted = self._trusted(queues)
        leads_to = self._classification(trusted=trusted)
        self._check_priority_groups()
        self._check_other_fields()
        settings = self._by_queue("QUEUE", queues)
        buffers = self._by_queue("BUFFER_QUEUE", queues)
        states = tuple(
            QueueState(
                queue,
                tuple(dscp for dscp in range(DSCP_COUNT) if leads_to.get(dscp) == queue),
                self._threshold(queue, settings[queue]),
                self._limit(queue, buffers[queue]),
            )
            for queue in queues
        )
        return PortState(self._port, trusted, None, states, tuple(self._unexpected))

    def _object(self, table: str, name: Value | None) -> Entry | None:
        return self._database.get(table, {}).get(name) if isinstance(name, str) else None

    def _trusted(self, queues: Sequence[int]) -> bool:
        bound = self._maps.get("dscp_to_tc_map")
        if bound not in (MAP, UNTRUSTED_MAP):
            self._unexpected.append(f"dscp_to_tc_map {bound or 'none'}")
        believes_nothing = [untrusted_map(queue) for queue in queues[-1:]]
        if bound == UNTRUSTED_MAP and self._object("DSCP_TO_TC_MAP", bound) not in believes_nothing:
            self._unexpected.append(f"DSCP_TO_TC_MAP|{UNTRUSTED_MAP} is not background alone")
        return bound not in (None, UNTRUSTED_MAP)

    def _classification(self, *, trusted: bool) -> dict[int, int]:
        """DSCP → queue, of packets that a trusted port classified."""
        code_points = self._object("DSCP_TO_TC_MAP", self._maps.get("dscp_to_tc_map") if trusted else MAP)
        bound = self._maps.get("tc_to_queue_map")
        queues = self._object("TC_TO_QUEUE_MAP", bound)
        if queues is None:
            self._unexpected.append(f"tc_to_queue_map {bound or 'none'}")
        found: dict[int, int] = {}
        for dscp, traffic_class in (code_points or {}).items():
            code_point, queue = _number(dscp), _number((queues or {}).get(_text(traffic_class)))
            if code_point is not None and queue is not None:
                found[code_point] = queue
        return found

    def _check_priority_groups(self) -> None:
        bound = self._maps.get("tc_to_pg_map")
        if self._object("TC_TO_PRIORITY_GROUP_MAP", bound) != TC_TO_PRIORITY_GROUP:
            self._unexpected.append(f"tc_to_pg_map {bound or 'none'}")

    def _check_other_fields(self) -> None:
        """Such as a shaper of the whole port, or a map that classifies or rewrites by something else."""
        self._unexpected += (
            f"{name} {_text(value)}" for name, value in self._maps.items() if name not in _PORT_FIELDS
        )

    def _by_queue(self, name: str, queues: Sequence[int]) -> dict[int, Entry]:
        table = self._database.get(name, {})
        keys = entries_of(table, self._port)
        for queue in queues:
            if len(keys.get(queue, ())) > 1:
                self._unexpected.append(f"{name} has {' and '.join(keys[queue])} for queue {queue}")
        return {queue: table[keys[queue][0]] if queue in keys else {} for queue in queues}

    def _threshold(self, queue: int, fields: Entry) -> int | None:
        scheduler = fields.get("scheduler")
        if self._object("SCHEDULER", scheduler) != STRICT:
            self._unexpected.append(f"queue {queue} scheduler {scheduler or 'none'}")
        name = fields.get("wred_profile")
        if name is None:
            return None
        profile = self._object("WRED_PROFILE", name)
        threshold = _number((profile or {}).get("green_min_threshold"))
        if threshold is not None and profile == wred_fields(threshold):
            return threshold
        self._unexpected.append(f"queue {queue} wred_profile {_text(name)}{_described(profile)}")
        return None

    def _limit(self, queue: int, fields: Entry) -> Limit:
        name = fields.get("profile")
        profile = self._object("BUFFER_PROFILE", name)
        exponent = _number((profile or {}).get("dynamic_th"))
        if exponent is not None and profile == buffer_fields(AlphaLimit(exponent)):
            return AlphaLimit(exponent)
        self._unexpected.append(f"queue {queue} buffer profile {_text(name or 'none')}{_described(profile)}")
        return Unlimited()


def _number(value: Value | None) -> int | None:
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def _described(profile: Entry | None) -> str:
    if profile is None:
        return ""
    return " (" + ", ".join(f"{name} {_text(value)}" for name, value in profile.items()) + ")"
