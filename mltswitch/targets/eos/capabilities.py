"""What Arista switches can do under EOS, by chip.

Sources: AVD is aristanetworks/avd, whose templates and schema say how lines are spelled; TOI are Arista's
feature abstracts (arista.com/en/support/toi); sonic-mgmt and sonic-buildimage describe the same boxes under
SONiC.
"""

from types import MappingProxyType
from typing import Final

from mltswitch.capabilities import Capabilities, LimitCapability, PortNumbering, ThresholdCapability

TRAFFIC_CLASSES: Final = 8
UNICAST_QUEUE: Final = "uc-tx-queue"
SHARED_QUEUE: Final = "tx-queue"
LARGEST_VALUE: Final = 256_000_000
"""Of a threshold on the command line, in whatever unit (AVD schema)."""

_CELLS: Final = "step: the chip's buffer cell, sonic-mgmt tests/qos/files/qos.yml ({chip}: cell_size {size})"
_LIMIT: Final = LimitCapability(
    kind="none",
    source="EOS manual and AVD schema name no limit in bytes per queue for every chip; the buffer's own "
    "dynamic limits stay as they are",
)
_RESERVED: Final = (
    (7, "EOS binds traffic class 7 to queue 7 and keeps both for control traffic (Arista TOI, QoS manual)"),
)
_UNVERIFIED: Final = (
    "random-detect ecn alone: marks ECN-capable packets and drops the others above the threshold",
    "random-detect ecn: minimum-threshold may equal maximum-threshold on this chip (AVD's tests have it)",
    "random-detect ecn: a threshold in whole cells is what the chip runs",
    "random-detect ecn: weight 0 is the instantaneous queue length; weight and max-mark-probability that "
    "show running-config leaves out are 0 and 100",
    "marks at enqueue",
    "strict queues: the higher number is served first, strict is the default, and round robin in queue 7 "
    "would be round robin in all below it",
    "no qos trust: traffic class from the port's own `qos cos` or `qos dscp`, whatever the packet says",
    "qos map traffic-class: the word before the queue is tx-queue on this chip too; sent only where the map "
    "was changed by hand",
    "show running-config: one line for several code points is a list or ranges; thresholds in the unit typed",
    "configure session: a commit timer that runs out restores what ran before; a name is not used twice",
    "packets to several receivers (mc-tx-queue) have queues of their own, which nobody configures here",
)


def _chip(
    *,
    hardware: str,
    description: str,
    sonic_name: str,
    cell_bytes: int,
    maximum_bytes: int,
    maximum_source: str,
    ports: int,
    unverified: tuple[str, ...] = (),
) -> Capabilities:
    cells = _CELLS.format(chip=sonic_name, size=cell_bytes)
    return Capabilities(
        platform="eos",
        hardware=hardware,
        description=description,
        queues=tuple(reversed(range(TRAFFIC_CLASSES - 1))),
        reserved_queues=_RESERVED,
        threshold=ThresholdCapability(
            step_bytes=cell_bytes,
            minimum_bytes=cell_bytes,
            maximum_bytes=maximum_bytes // cell_bytes * cell_bytes,
            source=f"{cells}; maximum: {maximum_source}",
        ),
        limit=_LIMIT,
        averaging="none, the instantaneous queue length (weight 0, public field configurations)",
        marks_at="enqueue",
        port_numbering=PortNumbering(pattern="Ethernet{n}/1"),
        port_count=ports,
        unverified=(*unverified, *_UNVERIFIED),
    )


TRIDENT3: Final = _chip(
    hardware="trident3",
    description="Arista 7050CX3-32S (Trident 3, 32 x 100G) under EOS",
    sonic_name="td3",
    cell_bytes=256,
    maximum_bytes=32_340_992,
    maximum_source="the largest egress pool that sonic-buildimage gives the box "
    "(device/arista/x86_64-arista_7050cx3_32s, BALANCED/buffers_defaults_t0.j2)",
    ports=32,
    unverified=("the queues' mode is uc-tx-queue on this chip (shown in public for Tomahawk 4)",),
)
TRIDENT2: Final = _chip(
    hardware="trident2",
    description="Arista 7050QX-32 (Trident 2, 32 x 40G) under EOS",
    sonic_name="td2",
    cell_bytes=208,
    maximum_bytes=12_000_000,
    maximum_source="12 MB of packet memory (Arista 7050X data sheet, quoted at "
    "people.ucsc.edu/~warner/Bufs/Arista-7050X)",
    ports=32,
    unverified=("the queues' mode is tx-queue on this chip: no public configuration of one was found",),
)
_NO_BUFFER_SIZE: Final = (
    "the greatest value of the command line (AVD schema); no public figure for the chip's buffer was found"
)
_NEVER_ACTS: Final = (
    "a threshold beyond what one queue may hold never acts; what it may hold has no source here"
)
TOMAHAWK: Final = _chip(
    hardware="tomahawk",
    description="Arista 7060CX-32S (Tomahawk, 32 x 100G) under EOS",
    sonic_name="th",
    cell_bytes=208,
    maximum_bytes=LARGEST_VALUE,
    maximum_source=_NO_BUFFER_SIZE,
    ports=32,
    unverified=(_NEVER_ACTS,),
)
TOMAHAWK2: Final = _chip(
    hardware="tomahawk2",
    description="Arista 7260CX3-64 (Tomahawk 2, 64 x 100G) under EOS",
    sonic_name="th2",
    cell_bytes=208,
    maximum_bytes=LARGEST_VALUE,
    maximum_source=_NO_BUFFER_SIZE,
    ports=64,
    unverified=(_NEVER_ACTS,),
)
TOMAHAWK3: Final = _chip(
    hardware="tomahawk3",
    description="Arista 7060PX4-32 and 7060DX4-32 (Tomahawk 3, 32 x 400G) under EOS",
    sonic_name="th3",
    cell_bytes=254,
    maximum_bytes=LARGEST_VALUE,
    maximum_source=_NO_BUFFER_SIZE,
    ports=32,
    unverified=(_NEVER_ACTS,),
)

HARDWARE: Final = MappingProxyType(
    {each.hardware: each for each in (TRIDENT3, TRIDENT2, TOMAHAWK, TOMAHAWK2, TOMAHAWK3)}
)
REFUSED: Final = MappingProxyType(
    {
        "jericho": "it marks by the average length of virtual output queues, and no source says that it "
        "drops packets that are not ECN-capable above the threshold; a plan depends on it",
    }
)
"""Chips that EOS runs on and mltswitch renders nothing for, and the figure that is missing."""
SHARED_QUEUE_CHIPS: Final = frozenset({TRIDENT2.hardware})
"""Chips whose queues are configured in mode `tx-queue`."""
