"""The configuration of an emulated SONiC switch as delivered, with the vendor's default QoS.

Figures: sonic-buildimage's files/build_templates/qos_config.j2 (maps and profiles named AZURE) and the buffer
defaults of each box for a top-of-rack switch (device/, buffers_defaults_t0.j2). Queues 3 and 4 are lossless,
all others lossy.
"""

import itertools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from switchsim.device import mac_address
from switchsim.sonic_yang import Database

DEFAULT_BOX: Final = "sn2700"
LANES_PER_PORT: Final = 4

_DEFAULTS: Final = """
DEVICE_METADATA|localhost hostname={hostname} hwsku={hwsku} platform={platform} mac={mac} type=ToRRouter
    bgp_asn=65100 buffer_model=traditional
PORT|{port} alias=etp{number} lanes={lanes} speed={speed} index={number} admin_status=up mtu=9100
DSCP_TO_TC_MAP|AZURE 0-2=1 3=3 4=4 5=2 6-7=1 8=0 9-45=1 46=5 47=1 48=6 49-63=1
TC_TO_QUEUE_MAP|AZURE 0=0 1=1 2=2 3=3 4=4 5=5 6=6 7=7
TC_TO_PRIORITY_GROUP_MAP|AZURE 0-2=0 3=3 4=4 5-6=0 7=7
MAP_PFC_PRIORITY_TO_QUEUE|AZURE 0=0 1=1 2=2 3=3 4=4 5=5 6=6 7=7
PFC_PRIORITY_TO_PRIORITY_GROUP_MAP|AZURE 3=3 4=4
PORT_QOS_MAP|global dscp_to_tc_map=AZURE
PORT_QOS_MAP|{port} dscp_to_tc_map=AZURE tc_to_queue_map=AZURE tc_to_pg_map=AZURE pfc_to_queue_map=AZURE
    pfc_to_pg_map=AZURE pfc_enable=3,4 pfcwd_sw_enable=3,4
SCHEDULER|scheduler.0 type=DWRR weight=14
SCHEDULER|scheduler.1 type=DWRR weight=15
WRED_PROFILE|AZURE_LOSSLESS ecn=ecn_all wred_green_enable=true green_min_threshold=1048576
    green_max_threshold=2097152 green_drop_probability=5 wred_yellow_enable=true
    yellow_min_threshold=1048576 yellow_max_threshold=2097152 yellow_drop_probability=5 wred_red_enable=true
    red_min_threshold=1048576 red_max_threshold=2097152 red_drop_probability=5
QUEUE|{port}|0 scheduler=scheduler.0
QUEUE|{port}|1 scheduler=scheduler.0
QUEUE|{port}|2 scheduler=scheduler.0
QUEUE|{port}|3 scheduler=scheduler.1 wred_profile=AZURE_LOSSLESS
QUEUE|{port}|4 scheduler=scheduler.1 wred_profile=AZURE_LOSSLESS
QUEUE|{port}|5 scheduler=scheduler.0
QUEUE|{port}|6 scheduler=scheduler.0
{buffers}
BUFFER_PG|{port}|0 profile=ingress_lossy_profile
BUFFER_QUEUE|{port}|0-2 profile={lossy}
BUFFER_QUEUE|{port}|3-4 profile=egress_lossless_profile
BUFFER_QUEUE|{port}|5-6 profile={lossy}
FLEX_COUNTER_TABLE|PORT FLEX_COUNTER_STATUS=enable
FLEX_COUNTER_TABLE|QUEUE FLEX_COUNTER_STATUS=enable
"""
"""Entry, fields; an entry of a port stands for all ports, and a field `0-2` for three fields."""

_SPECTRUM: Final = """
BUFFER_POOL|ingress_lossless_pool type=ingress mode=dynamic size={0}
BUFFER_POOL|ingress_lossy_pool type=ingress mode=dynamic size={0}
BUFFER_POOL|egress_lossless_pool type=egress mode=dynamic size={1}
BUFFER_POOL|egress_lossy_pool type=egress mode=dynamic size={0}
BUFFER_PROFILE|ingress_lossless_profile pool=ingress_lossless_pool size=0 dynamic_th=7
BUFFER_PROFILE|ingress_lossy_profile pool=ingress_lossy_pool size=0 dynamic_th=3
BUFFER_PROFILE|egress_lossless_profile pool=egress_lossless_pool size=0 dynamic_th=7
BUFFER_PROFILE|egress_lossy_profile pool=egress_lossy_pool size=9216 dynamic_th=7
BUFFER_PROFILE|q_lossy_profile pool=egress_lossy_pool size=0 dynamic_th=3
"""
_BROADCOM: Final = """
BUFFER_POOL|ingress_lossless_pool type=ingress mode=dynamic size={0}
BUFFER_POOL|egress_lossless_pool type=egress mode=static size={1}
BUFFER_POOL|egress_lossy_pool type=egress mode=dynamic size={2}
BUFFER_PROFILE|ingress_lossy_profile pool=ingress_lossless_pool size=0 {3}
BUFFER_PROFILE|egress_lossless_profile pool=egress_lossless_pool size=0 static_th={1}
BUFFER_PROFILE|egress_lossy_profile pool=egress_lossy_pool size={4} {5}
"""


def _spectrum(model: str, figures: str, speed: str = "100000") -> dict[str, str]:
    place = {"hwsku": f"ACS-MSN{model}", "platform": f"x86_64-mlnx_msn{model}-r0", "speed": speed}
    return place | {"lossy": "q_lossy_profile", "buffers": _SPECTRUM.format(*figures.split()).strip()}


def _broadcom(hwsku: str, platform: str, figures: str) -> dict[str, str]:
    place = {"hwsku": f"Arista-{hwsku}", "platform": f"x86_64-arista_{platform}", "speed": "100000"}
    return place | {"lossy": "egress_lossy_profile", "buffers": _BROADCOM.format(*figures.split()).strip()}


BOXES: Final[Mapping[str, dict[str, str]]] = MappingProxyType(
    {
        "sn2700": _spectrum("2700", "4580864 13945824"),
        "sn2100": _spectrum("2100", "4580864 13945824"),
        "sn3700": _spectrum("3700", "14542848 34287552", "200000"),
        "trident3": _broadcom(
            *("7050CX3-32S-C32", "7050cx3_32s"),
            "32732160 32599040 24709632 static_th=32732160 1792 dynamic_th=3",
        ),
        "tomahawk": _broadcom(
            "7060CX-32S-C32", "7060_cx32s", "10875072 15982720 9243812 dynamic_th=3 1518 dynamic_th=3"
        ),
        "tomahawk2": _broadcom(
            "7260CX3-C64", "7260cx3_64", "33329088 42349632 26663272 static_th=44302336 1664 dynamic_th=-1"
        ),
    }
)
"""Name of a box → its hardware names, port speed in Mbit/s and buffer profile of lossy queues."""


def default_database(hostname: str, port_count: int, box_name: str = DEFAULT_BOX) -> Database:
    """CONFIG_DB with ports Ethernet0, Ethernet4, …, each with the vendor's QoS."""
    names = BOXES[box_name] | {"hostname": hostname, "mac": mac_address(hostname)}
    text = _DEFAULTS.replace("{buffers}", names["buffers"]).replace("\n ", " ").strip()
    database: Database = {}
    for table, lines in itertools.groupby(text.split("\n"), key=lambda line: line.partition("|")[0]):
        entries = database.setdefault(table, {})
        for index, line in itertools.product(range(port_count), list(lines)):
            lanes = range(LANES_PER_PORT * index, LANES_PER_PORT * (index + 1))
            port = {"port": f"Ethernet{lanes[0]}", "lanes": ",".join(map(str, lanes)), "number": index + 1}
            key, *fields = line.format(**names, **port).split()
            entries[key.removeprefix(f"{table}|")] = {
                name: value for field in fields for name, value in _expanded(*field.split("="))
            }
    return database


def _expanded(name: str, value: str) -> list[tuple[str, str]]:
    span = re.fullmatch(r"(\d+)-(\d+)", name)
    names = [name] if span is None else [str(number) for number in range(int(span[1]), int(span[2]) + 1)]
    return [(each, value) for each in names]
