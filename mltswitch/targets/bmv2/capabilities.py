"""What mltswitch's P4 program on BMv2's simple_switch can do: it counts bytes, so little is rounded."""

from typing import Final

from mltswitch.capabilities import (
    BandwidthCapability,
    Capabilities,
    LimitCapability,
    PortNumbering,
    ThresholdCapability,
)

PLATFORM: Final = "bmv2"
QUEUE_COUNT: Final = 8
BACKGROUND_QUEUE: Final = 0
"""Queue of packets that no DSCP map entry leads elsewhere (mltswitch/p4/mlt.p4)."""
QUEUE_DEPTH_PACKETS: Final = 16_384
"""Length in packets of BMv2's own queues, which never drop where the program's byte limits come first."""
LEAST_PACKET_BYTES: Final = 34
"""The shortest packet: Ethernet and IPv4 header. Virtual links do not pad; the program drops shorter ones."""
MAXIMUM_LIMIT_BYTES: Final = QUEUE_DEPTH_PACKETS * LEAST_PACKET_BYTES
MAXIMUM_ROUTES: Final = 4096
MAXIMUM_GROUPS: Final = 255
"""The highest group number, `GROUPS` of mltswitch/p4/mlt.p4; number 0 stands for no group."""
MAXIMUM_CLASSES: Final = 4096
"""How many DSCP map entries all ports may have together, `DSCP_ENTRIES` of mltswitch/p4/mlt.p4."""
ETHERNET_BYTES: Final = 14
PORTS: Final = 511
"""How many port numbers there are, 0 to 510; 511 drops (simple_switch's documentation, --drop-port)."""
CPU_PORT: Final = 255
"""Port number of the switch's control plane (--cpu-port 255)."""

SIMPLE_SWITCH = Capabilities(
    platform=PLATFORM,
    hardware="simple_switch",
    description="BMv2's software switch (simple_switch_grpc) with the P4 program of mltswitch/p4",
    queues=tuple(reversed(range(QUEUE_COUNT))),
    threshold=ThresholdCapability(
        step_bytes=1,
        minimum_bytes=1,
        maximum_bytes=MAXIMUM_LIMIT_BYTES,
        source="mltswitch/p4/admission.p4: waiting bytes of each port and queue",
    ),
    limit=LimitCapability(
        kind="bytes",
        source="mltswitch/p4/admission.p4; at most the shortest packets that a queue of BMv2 has room for",
        maximum_bytes=MAXIMUM_LIMIT_BYTES,
    ),
    averaging="none: the bytes that wait when the packet arrives",
    marks_at="enqueue",
    port_numbering=PortNumbering(pattern="eth{n}", lanes=0),
    maximum_bandwidth=BandwidthCapability(
        kind="rate",
        step_bps=8,
        minimum_bps=8,
        source="P4Runtime specification 1.3, MeterConfig: whole bytes a second; what exceeds them is dropped",
    ),
    remaps_host_control=True,
    rewrites_code_points="mltswitch/p4/trust.p4: distrust, set_queue_and_dscp",
    packet_spraying="mltswitch/p4/forwarding.p4: share_packets",
    source_routing="mltswitch/p4/parser.p4, forwarding.p4: the header of mltswitch/wire/source_route.py",
)
HARDWARE = {SIMPLE_SWITCH.hardware: SIMPLE_SWITCH}
