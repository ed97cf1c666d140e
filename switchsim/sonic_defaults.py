"""The configuration of an emulated SONiC switch as delivered, with the vendor's default QoS.

Figures: sonic-buildimage's files/build_templates/qos_config.j2 (maps and profiles named AZURE) and the buffer
defaults of each box for a top-of-rack switch (device/, buffers_defaults_t0.j2). Queues 3 and 4 are lossless,
all others lossy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from switchsim.device import mac_address
from switchsim.sonic_yang import Database, Entry, Table

MAX_PORTS: Final = 64
DEFAULT_BOX: Final = "sn2700"
LANES_PER_PORT: Final = 4

_LOSSLESS: Final = (3, 4)
_SPECIAL_CODE_POINTS: Final = {3: 3, 4: 4, 5: 2, 8: 0, 46: 5, 48: 6}
"""DSCP → traffic class where it is not 1."""
Profile = tuple[str, str, str]
"""Pool, reserved bytes, and `dynamic_th N` or `static_th N`."""


@dataclass(frozen=True, slots=True)
class Box:
    """What differs between boxes."""

    maker: str
    """Of the chip: mellanox or broadcom."""
    hwsku: str
    platform: str
    speed: str
    """Mbit/s of a port."""
    pools: Mapping[str, tuple[str, str]]
    """Name → mode, size."""
    profiles: Mapping[str, Profile]
    lossy_queues: str
    """Profile of the lossy queues."""


def _spectrum(hwsku: str, platform: str, speed: str, lossy: str, lossless: str) -> Box:
    return Box(
        "mellanox",
        hwsku,
        platform,
        speed,
        {
            "ingress_lossless_pool": ("dynamic", lossy),
            "ingress_lossy_pool": ("dynamic", lossy),
            "egress_lossless_pool": ("dynamic", lossless),
            "egress_lossy_pool": ("dynamic", lossy),
        },
        {
            "ingress_lossless_profile": ("ingress_lossless_pool", "0", "dynamic_th 7"),
            "ingress_lossy_profile": ("ingress_lossy_pool", "0", "dynamic_th 3"),
            "egress_lossless_profile": ("egress_lossless_pool", "0", "dynamic_th 7"),
            "egress_lossy_profile": ("egress_lossy_pool", "9216", "dynamic_th 7"),
            "q_lossy_profile": ("egress_lossy_pool", "0", "dynamic_th 3"),
        },
        "q_lossy_profile",
    )


def _broadcom(hwsku: str, platform: str, pools: tuple[str, str, str], ingress: str, lossy: Profile) -> Box:
    """`pools`: sizes of ingress_lossless_pool, egress_lossless_pool (static) and egress_lossy_pool."""
    ingress_lossless, lossless, egress_lossy = pools
    return Box(
        "broadcom",
        hwsku,
        platform,
        "100000",
        {
            "ingress_lossless_pool": ("dynamic", ingress_lossless),
            "egress_lossless_pool": ("static", lossless),
            "egress_lossy_pool": ("dynamic", egress_lossy),
        },
        {
            "ingress_lossy_profile": ("ingress_lossless_pool", "0", ingress),
            "egress_lossless_profile": ("egress_lossless_pool", "0", f"static_th {lossless}"),
            "egress_lossy_profile": lossy,
        },
        "egress_lossy_profile",
    )


BOXES: Final[Mapping[str, Box]] = MappingProxyType(
    {
        "sn2700": _spectrum("ACS-MSN2700", "x86_64-mlnx_msn2700-r0", "100000", "4580864", "13945824"),
        "sn2100": _spectrum("ACS-MSN2100", "x86_64-mlnx_msn2100-r0", "100000", "4580864", "13945824"),
        "sn3700": _spectrum("ACS-MSN3700", "x86_64-mlnx_msn3700-r0", "200000", "14542848", "34287552"),
        "trident3": _broadcom(
            "Arista-7050CX3-32S-C32",
            "x86_64-arista_7050cx3_32s",
            ("32732160", "32599040", "24709632"),
            "static_th 32732160",
            ("egress_lossy_pool", "1792", "dynamic_th 3"),
        ),
        "tomahawk": _broadcom(
            "Arista-7060CX-32S-C32",
            "x86_64-arista_7060_cx32s",
            ("10875072", "15982720", "9243812"),
            "dynamic_th 3",
            ("egress_lossy_pool", "1518", "dynamic_th 3"),
        ),
        "tomahawk2": _broadcom(
            "Arista-7260CX3-C64",
            "x86_64-arista_7260cx3_64",
            ("33329088", "42349632", "26663272"),
            "static_th 44302336",
            ("egress_lossy_pool", "1664", "dynamic_th -1"),
        ),
    }
)


def default_database(hostname: str, port_count: int, box_name: str = DEFAULT_BOX) -> Database:
    """CONFIG_DB with ports Ethernet0, Ethernet4, …, each with the vendor's QoS."""
    box = BOXES[box_name]
    ports = [f"Ethernet{LANES_PER_PORT * index}" for index in range(port_count)]
    return {
        "DEVICE_METADATA": {
            "localhost": {
                "hostname": hostname,
                "hwsku": box.hwsku,
                "platform": box.platform,
                "mac": mac_address(hostname),
                "type": "ToRRouter",
                "bgp_asn": "65100",
                "buffer_model": "traditional",
            }
        },
        "PORT": {port: _port(index, box.speed) for index, port in enumerate(ports)},
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
            name: {"type": name.partition("_")[0], "mode": mode, "size": size}
            for name, (mode, size) in box.pools.items()
        },
        "BUFFER_PROFILE": {
            name: {"pool": pool, "size": size, **dict([threshold.split()])}
            for name, (pool, size, threshold) in box.profiles.items()
        },
        "BUFFER_PG": {f"{port}|0": {"profile": "ingress_lossy_profile"} for port in ports},
        "BUFFER_QUEUE": _buffer_queues(ports, box.lossy_queues),
        "FLEX_COUNTER_TABLE": {name: {"FLEX_COUNTER_STATUS": "enable"} for name in ("PORT", "QUEUE")},
    }


def _identity() -> Entry:
    return {str(number): str(number) for number in range(8)}


def _port(index: int, speed: str) -> Entry:
    first = index * LANES_PER_PORT
    return {
        "alias": f"etp{index + 1}",
        "lanes": ",".join(str(lane) for lane in range(first, first + LANES_PER_PORT)),
        "speed": speed,
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


def _buffer_queues(ports: list[str], lossy: str) -> Table:
    profiles = {"0-2": lossy, "3-4": "egress_lossless_profile", "5-6": lossy}
    return {f"{port}|{queues}": {"profile": name} for port in ports for queues, name in profiles.items()}
