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
from switchsim.sonic_yang import COLOURS, Database, Entry

DEFAULT_BOX: Final = "sn2700"
LANES_PER_PORT: Final = 4

_LOSSLESS: Final = (3, 4)
_SPECIAL_CODE_POINTS: Final = {3: 3, 4: 4, 5: 2, 8: 0, 46: 5, 48: 6}
"""DSCP → traffic class where it is not 1."""

_SPECTRUM: Final = """
ingress_lossless_pool dynamic {0}
ingress_lossy_pool dynamic {0}
egress_lossless_pool dynamic {1}
egress_lossy_pool dynamic {0}

ingress_lossless_profile ingress_lossless_pool 0 dynamic_th 7
ingress_lossy_profile ingress_lossy_pool 0 dynamic_th 3
egress_lossless_profile egress_lossless_pool 0 dynamic_th 7
egress_lossy_profile egress_lossy_pool 9216 dynamic_th 7
q_lossy_profile egress_lossy_pool 0 dynamic_th 3
"""
_BROADCOM: Final = """
ingress_lossless_pool dynamic {0}
egress_lossless_pool static {1}
egress_lossy_pool dynamic {2}

ingress_lossy_profile ingress_lossless_pool 0 {3} {4}
egress_lossless_profile egress_lossless_pool 0 static_th {1}
egress_lossy_profile egress_lossy_pool {5} dynamic_th {6}
"""


@dataclass(frozen=True, slots=True)
class Box:
    """What differs between boxes."""

    hwsku: str
    platform: str
    buffers: str
    """Pools (name, mode, size), an empty line, profiles (name, pool, reserved bytes, threshold)."""
    lossy_queues: str
    """Profile of the lossy queues."""
    speed: str = "100000"
    """Mbit/s of a port."""


def _spectrum(model: str, lossy: str, lossless: str, speed: str = "100000") -> Box:
    buffers = _SPECTRUM.format(lossy, lossless)
    return Box(f"ACS-MSN{model}", f"x86_64-mlnx_msn{model}-r0", buffers, "q_lossy_profile", speed)


def _broadcom(hwsku: str, platform: str, figures: str) -> Box:
    buffers = _BROADCOM.format(*figures.split())
    return Box(f"Arista-{hwsku}", f"x86_64-arista_{platform}", buffers, "egress_lossy_profile")


BOXES: Final[Mapping[str, Box]] = MappingProxyType(
    {
        "sn2700": _spectrum("2700", "4580864", "13945824"),
        "sn2100": _spectrum("2100", "4580864", "13945824"),
        "sn3700": _spectrum("3700", "14542848", "34287552", "200000"),
        "trident3": _broadcom(
            "7050CX3-32S-C32", "7050cx3_32s", "32732160 32599040 24709632 static_th 32732160 1792 3"
        ),
        "tomahawk": _broadcom(
            "7060CX-32S-C32", "7060_cx32s", "10875072 15982720 9243812 dynamic_th 3 1518 3"
        ),
        "tomahawk2": _broadcom(
            "7260CX3-C64", "7260cx3_64", "33329088 42349632 26663272 static_th 44302336 1664 -1"
        ),
    }
)


def default_database(hostname: str, port_count: int, box_name: str = DEFAULT_BOX) -> Database:
    """CONFIG_DB with ports Ethernet0, Ethernet4, …, each with the vendor's QoS."""
    box = BOXES[box_name]
    pools, profiles = (
        [line.split() for line in part.split("\n")] for part in box.buffers.strip().split("\n\n")
    )
    ports = [f"Ethernet{LANES_PER_PORT * index}" for index in range(port_count)]
    lossless = ",".join(map(str, _LOSSLESS))
    maps = ("dscp_to_tc_map", "tc_to_queue_map", "tc_to_pg_map", "pfc_to_queue_map", "pfc_to_pg_map")
    queue_profiles = {"0-2": box.lossy_queues, "3-4": "egress_lossless_profile", "5-6": box.lossy_queues}
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
        "PORT_QOS_MAP": {
            "global": {"dscp_to_tc_map": "AZURE"},
            **{
                port: {**dict.fromkeys(maps, "AZURE"), "pfc_enable": lossless, "pfcwd_sw_enable": lossless}
                for port in ports
            },
        },
        "SCHEDULER": {
            "scheduler.0": {"type": "DWRR", "weight": "14"},
            "scheduler.1": {"type": "DWRR", "weight": "15"},
        },
        "WRED_PROFILE": {"AZURE_LOSSLESS": _lossless_wred()},
        "QUEUE": {f"{port}|{queue}": _queue(queue) for port in ports for queue in range(7)},
        "BUFFER_POOL": {
            name: {"type": name.partition("_")[0], "mode": mode, "size": size} for name, mode, size in pools
        },
        "BUFFER_PROFILE": {
            name: {"pool": pool, "size": size, kind: threshold}
            for name, pool, size, kind, threshold in profiles
        },
        "BUFFER_PG": {f"{port}|0": {"profile": "ingress_lossy_profile"} for port in ports},
        "BUFFER_QUEUE": {
            f"{port}|{queues}": {"profile": name} for port in ports for queues, name in queue_profiles.items()
        },
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


def _queue(number: int) -> Entry:
    if number in _LOSSLESS:
        return {"scheduler": "scheduler.1", "wred_profile": "AZURE_LOSSLESS"}
    return {"scheduler": "scheduler.0"}


def _lossless_wred() -> Entry:
    fields: Entry = {"ecn": "ecn_all"}
    for colour in COLOURS:
        fields |= {
            f"wred_{colour}_enable": "true",
            f"{colour}_min_threshold": "1048576",
            f"{colour}_max_threshold": "2097152",
            f"{colour}_drop_probability": "5",
        }
    return fields
