"""The configuration of an emulated SONiC switch as delivered: an SN2700 with the vendor's default QoS.

Figures: sonic-buildimage's files/build_templates/qos_config.j2 (maps and profiles named AZURE) and the buffer
defaults of the SN2700 for a top-of-rack switch. Queues 3 and 4 are lossless, all others lossy.
"""

from typing import Final

from mltswitch.lab.emulators.sonic_yang import Database, Entry, Table

MAX_PORTS: Final = 32
LANES_PER_PORT: Final = 4

_LOSSLESS: Final = (3, 4)
_SPECIAL_CODE_POINTS: Final = {3: 3, 4: 4, 5: 2, 8: 0, 46: 5, 48: 6}
"""DSCP → traffic class where it is not 1."""
_POOLS: Final = {
    "ingress_lossless_pool": "4580864",
    "ingress_lossy_pool": "4580864",
    "egress_lossless_pool": "13945824",
    "egress_lossy_pool": "4580864",
}
_PROFILES: Final = {
    "ingress_lossless_profile": ("ingress_lossless_pool", "0", "7"),
    "ingress_lossy_profile": ("ingress_lossy_pool", "0", "3"),
    "egress_lossless_profile": ("egress_lossless_pool", "0", "7"),
    "egress_lossy_profile": ("egress_lossy_pool", "9216", "7"),
    "q_lossy_profile": ("egress_lossy_pool", "0", "3"),
}
"""Name → pool, reserved bytes, dynamic_th."""


def default_database(hostname: str, port_count: int) -> Database:
    """CONFIG_DB with ports Ethernet0, Ethernet4, …, each with the vendor's QoS."""
    ports = [f"Ethernet{LANES_PER_PORT * index}" for index in range(port_count)]
    return {
        "DEVICE_METADATA": {
            "localhost": {
                "hostname": hostname,
                "hwsku": "ACS-MSN2700",
                "platform": "x86_64-mlnx_msn2700-r0",
                "mac": "02:00:00:00:00:01",
                "type": "ToRRouter",
                "bgp_asn": "65100",
                "buffer_model": "traditional",
            }
        },
        "PORT": {port: _port(index) for index, port in enumerate(ports)},
        "DSCP_TO_TC_MAP": {"AZURE": {str(n): str(_SPECIAL_CODE_POINTS.get(n, 1)) for n in range(64)}},
        "TC_TO_QUEUE_MAP": {"AZURE": _identity()},
        "TC_TO_PRIORITY_GROUP_MAP": {
            "AZURE": {**dict.fromkeys(_identity(), "0"), "3": "3", "4": "4", "7": "7"}
        },
        "MAP_PFC_PRIORITY_TO_QUEUE": {"AZURE": _identity()},
        "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": {"AZURE": {str(n): str(n) for n in _LOSSLESS}},
        "PORT_QOS_MAP": {"global": {"dscp_to_tc_map": "AZURE"}, **{port: _port_qos() for port in ports}},
        "SCHEDULER": {
            "scheduler.0": {"type": "DWRR", "weight": "14"},
            "scheduler.1": {"type": "DWRR", "weight": "15"},
        },
        "WRED_PROFILE": {"AZURE_LOSSLESS": _lossless_wred()},
        "QUEUE": _queues(ports),
        "BUFFER_POOL": {
            name: {"type": name.partition("_")[0], "mode": "dynamic", "size": size}
            for name, size in _POOLS.items()
        },
        "BUFFER_PROFILE": {
            name: {"pool": pool, "size": size, "dynamic_th": threshold}
            for name, (pool, size, threshold) in _PROFILES.items()
        },
        "BUFFER_PG": {f"{port}|0": {"profile": "ingress_lossy_profile"} for port in ports},
        "BUFFER_QUEUE": _buffer_queues(ports),
    }


def _identity() -> Entry:
    return {str(number): str(number) for number in range(8)}


def _port(index: int) -> Entry:
    first = index * LANES_PER_PORT
    return {
        "alias": f"etp{index + 1}",
        "lanes": ",".join(str(lane) for lane in range(first, first + LANES_PER_PORT)),
        "speed": "100000",
        "index": str(index + 1),
        "admin_status": "up",
        "mtu": "9100",
    }


def _port_qos() -> Entry:
    maps = ("dscp_to_tc_map", "tc_to_queue_map", "tc_to_pg_map", "pfc_to_queue_map", "pfc_to_pg_map")
    lossless = ",".join(str(queue) for queue in _LOSSLESS)
    return {**dict.fromkeys(maps, "AZURE"), "pfc_enable": lossless, "pfcwd_sw_enable": lossless}


def _lossless_wred() -> Entry:
    fields: Entry = {"ecn": "ecn_all"}
    for colour in ("green", "yellow", "red"):
        fields |= {
            f"wred_{colour}_enable": "true",
            f"{colour}_min_threshold": "1048576",
            f"{colour}_max_threshold": "2097152",
            f"{colour}_drop_probability": "5",
        }
    return fields


def _queues(ports: list[str]) -> Table:
    queues: Table = {}
    for port in ports:
        for queue in range(7):
            queues[f"{port}|{queue}"] = (
                {"scheduler": "scheduler.1", "wred_profile": "AZURE_LOSSLESS"}
                if queue in _LOSSLESS
                else {"scheduler": "scheduler.0"}
            )
    return queues


def _buffer_queues(ports: list[str]) -> Table:
    profiles = {"0-2": "q_lossy_profile", "3-4": "egress_lossless_profile", "5-6": "q_lossy_profile"}
    return {f"{port}|{queues}": {"profile": name} for port in ports for queues, name in profiles.items()}
