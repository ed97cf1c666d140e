"""What Arista switches can do under EOS, by chip.

Sources: AVD is aristanetworks/avd, whose templates and schema say how lines are spelled; TOI are Arista's
feature abstracts (arista.com/en/support/toi); sonic-mgmt and sonic-buildimage describe the same boxes under
SONiC.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mltswitch.capabilities import (
    BandwidthCapability,
    Capabilities,
    LimitCapability,
    PortNumbering,
    unverified,
)
from mltswitch.capabilities.hardware import (
    Chip,
    box,
    chip,
    hardware_data,
    require,
    threshold_capability,
)

TRAFFIC_CLASSES: Final = 8
LOSSLESS: Final = (3, 4)
"""Queues that a plan leaves to lossless classes: the priorities for which RoCE guides switch PFC on."""
UNICAST_QUEUE: Final = "uc-tx-queue"
SHARED_QUEUE: Final = "tx-queue"
RATE_STEP_BPS: Final = 1000
"""The step of rates in `shape rate N kbps`, in bit/s."""
LARGEST_RATE_BPS: Final = 400_000_000_000
"""The highest rate of a port of these chips in bit/s; no source says where the command ends."""

_LIMIT: Final = LimitCapability(
    kind="none",
    source="EOS manual and AVD schema name no limit in bytes per queue for every chip; the buffer's own "
    "dynamic limits stay as they are",
)
_MINIMUM: Final = BandwidthCapability(
    kind="percent",
    source="`bandwidth guaranteed percent` of a queue: AVD schema and tested configuration qos.cfg",
)
_MAXIMUM: Final = BandwidthCapability(
    kind="rate",
    source="`shape rate N kbps`, of a queue too: AVD schema (< rate > kbps), tested for a port in "
    "ethernet-interfaces.cfg",
    step_bps=RATE_STEP_BPS,
    minimum_bps=RATE_STEP_BPS,
    maximum_bps=LARGEST_RATE_BPS,
)
_RESERVED: Final = (
    (7, "EOS binds traffic class 7 to queue 7 and keeps both for control traffic (Arista TOI, QoS manual)"),
)
_UNVERIFIED: Final = unverified(
    "eos",
    {
        "red-per-packet": "random-detect ecn alone: marks ECN-capable packets and drops the others above "
        "the threshold",
        "equal-thresholds": "random-detect ecn: minimum-threshold may equal maximum-threshold on this chip "
        "(AVD's tests have it)",
        "threshold-cells": "random-detect ecn: a threshold in whole cells is what the chip runs",
        "queue-length": "random-detect ecn: weight 0 is the instantaneous queue length; weight and "
        "max-mark-probability that show running-config leaves out are 0 and 100",
        "marking-point": "marks at dequeue: shown for Trident 3 under SONiC, whose test expects it of the "
        "other chips, too (sonic-mgmt, test_dequeue_ecn_with_snappi.py)",
        "strict-order": "strict queues: the higher number is served first, strict is the default, and round "
        "robin in queue 7 would be round robin in all below it",
        "no-trust": "no qos trust: traffic class from the port's own `qos cos` or `qos dscp`, whatever the "
        "packet says",
        "class-map-word": "qos map traffic-class: the word before the queue is tx-queue on this chip too; "
        "sent only where the map was changed by hand",
        "configuration-shown": "show running-config: one line for several code points is a list or ranges; "
        "thresholds in the unit typed",
        "commit-timer": "configure session: a commit timer that runs out restores what ran before; a name "
        "is not used twice",
        "minimum-bandwidth": "bandwidth guaranteed: background gets it however much waits in the strict "
        "queues above it; on a strict queue it stands in AVD's tests",
        "bandwidth-steps": "bandwidth guaranteed, shape rate: in which steps the chip takes them, and how "
        "greatly a queue that is held to its rate may burst; shape rate in kbps and not in percents on this "
        "chip",
        "bandwidth-removal": "no bandwidth guaranteed, no shape rate: the words that take them back",
        "marked-counter": "random-detect ecn count: this chip has the counter (public for Tomahawk, in "
        "AVD's tests without a chip); where it has not, it refuses the session's line and nothing is in "
        "effect",
        "policy-precedence": "policy-map on a port that trusts DSCP: its traffic class comes before that of "
        "the DSCP, and packets of no class are treated as without it",
        "policy-rewrite": "set dscp in a policy map: written into routed and bridged packets, without `qos "
        "rewrite dscp` and on ports without trust, too; the ECN bits stay",
        "policy-everything": "ip access-list with permit any any, in a class map: takes every packet of its "
        "family (the EOS manual says that class-default takes neither IPv4 nor IPv6)",
        "policy-space": "policy-map: the chip's tables have room for it without another TCAM profile",
        "list-numbers": "ip access-list: an entry keeps the number that it was given",
        "multicast-queues": "packets to several receivers (mc-tx-queue) have queues of their own, which "
        "nobody configures here",
    },
)


def _chip(
    *,
    hardware: str,
    description: str,
    of: str,
    own: Mapping[str, str] = MappingProxyType({}),
) -> Capabilities:
    typical = box(of)
    return Capabilities(
        platform="eos",
        hardware=hardware,
        description=description,
        queues=tuple(reversed(range(TRAFFIC_CLASSES - 1))),
        reserved_queues=_RESERVED,
        lossless_queues=LOSSLESS,
        threshold=threshold_capability(chip(typical.chip)),
        limit=_LIMIT,
        averaging="none, the instantaneous queue length (weight 0, public field configurations)",
        marks_at="dequeue",
        # SB 7050CX3-32S, port_config.ini, whose aliases are EOS's names: Ethernet1/1 to 1/4, and Ethernet33.
        port_numbering=PortNumbering(
            pattern="Ethernet{n}/1",
            lanes=8 if require(typical.ports)[0].rate_bps >= 400 * 10**9 else 4,
            lane_pattern="Ethernet{n}/{lane}",
            skips_lanes=True,
            other_pattern="Ethernet{n}",
        ),
        ports=require(typical.ports),
        minimum_bandwidth=_MINIMUM,
        maximum_bandwidth=_MAXIMUM,
        rewrites_code_points="`set dscp` in a class of a policy map: EOS manual, Traffic Management, set "
        "(policy-map-class (qos) Trident), beside `set traffic-class`; both in one class in AVD's tested "
        "configuration policy-maps.cfg",
        remaps_host_control=True,
        unverified=(*unverified("eos", own), *_UNVERIFIED),
    )


TRIDENT3: Final = _chip(
    hardware="trident3",
    description="Arista 7050CX3-32S (Trident 3, 32 x 100G) under EOS",
    of="7050cx3-32s",
    own={
        "queue-mode": "the queues' mode is uc-tx-queue on this chip (shown in public for Tomahawk 4)",
    },
)
TRIDENT2: Final = _chip(
    hardware="trident2",
    description="Arista 7050QX-32 (Trident 2, 32 x 40G) under EOS",
    of="7050qx-32",
    own={
        "queue-mode": "the queues' mode is tx-queue on this chip: no public configuration of one was found",
    },
)
_NEVER_ACTS: Final = MappingProxyType(
    {
        "threshold-reach": "a threshold beyond what one queue may hold never acts; what EOS lets it hold by "
        "default has no source",
    }
)
TOMAHAWK: Final = _chip(
    hardware="tomahawk",
    description="Arista 7060CX-32S (Tomahawk, 32 x 100G) under EOS",
    of="7060cx-32s",
    own=_NEVER_ACTS,
)
TOMAHAWK2: Final = _chip(
    hardware="tomahawk2",
    description="Arista 7260CX3-64 (Tomahawk 2, 64 x 100G) under EOS",
    of="7260cx3-64",
    own=_NEVER_ACTS,
)
TOMAHAWK3: Final = _chip(
    hardware="tomahawk3",
    description="Arista 7060PX4-32 and 7060DX4-32 (Tomahawk 3, 32 x 400G) under EOS",
    of="7060px4-32",
    own=_NEVER_ACTS,
)

HARDWARE: Final = MappingProxyType(
    {each.hardware: each for each in (TRIDENT3, TRIDENT2, TOMAHAWK, TOMAHAWK2, TOMAHAWK3)}
)


def _missing(of: Chip) -> str:
    """Figures that a plan depends on, and that no source is known for."""
    needed = (of.drops_not_capable, of.instantaneous_length, of.cell_bytes, of.threshold_step_cells)
    return ", ".join(figure.name for figure in needed if figure.value is None)


REFUSED: Final = MappingProxyType(
    {
        "jericho": "it marks by the average length of virtual output queues, and no source is known for "
        f"{_missing(chip('jericho'))}; a plan depends on them (mltswitch targets --hardware jericho)",
    }
)
"""Chip that EOS runs on and for which mltswitch renders nothing → the figure that is missing."""
BOX_CHIPS: Final = MappingProxyType(
    {name: each.chip for name, each in hardware_data().boxes.items()} | {"7060dx4-32": TOMAHAWK3.hardware}
)
"""Name of a box in small letters, without the `DCS-` that Arista's begin with → chip."""
R_SERIES: Final = ("7020", "7280", "7500", "7800")
"""Beginnings of the names of boxes where an R says that the chip is a Jericho (AVD, platform-settings.md:
Jericho based platforms 7280R to 7280R3, 7500R to 7500R3, 7800R3)."""


def queue_word(capabilities: Capabilities) -> str:
    """The keyword that opens a queue's mode: chips with one kind of queue have one of their own."""
    return SHARED_QUEUE if capabilities.hardware == TRIDENT2.hardware else UNICAST_QUEUE
