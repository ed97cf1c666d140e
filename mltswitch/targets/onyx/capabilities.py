"""What Spectrum switches can do under Onyx."""

from types import MappingProxyType

from mltswitch.capabilities import Capabilities, LimitCapability, PortNumbering, ThresholdCapability

CELL_BYTES = 96
THRESHOLD_STEP_CELLS = 64
THRESHOLD_STEP_BYTES = CELL_BYTES * THRESHOLD_STEP_CELLS
"""6144 B: also a whole number of the KB in which the command line counts."""
LARGEST_POOL_BYTES = 13_945_824
TRAFFIC_CLASSES = 8

SN2100 = Capabilities(
    platform="onyx",
    hardware="sn2100",
    description="NVIDIA SN2100 (Spectrum, 16 x 100G) under Onyx 3.7-3.10",
    queues=tuple(reversed(range(TRAFFIC_CLASSES))),
    threshold=ThresholdCapability(
        step_bytes=THRESHOLD_STEP_BYTES,
        minimum_bytes=THRESHOLD_STEP_BYTES,
        maximum_bytes=LARGEST_POOL_BYTES // THRESHOLD_STEP_BYTES * THRESHOLD_STEP_BYTES,
        source="step: Linux mlxsw reg.h, register CWTP: 64 cells of 96 B, rounded up, 0 refused; "
        "maximum: the largest buffer pool that sonic-buildimage gives the chip "
        "(device/mellanox/x86_64-mlnx_msn2700-r0, buffers_defaults)",
    ),
    limit=LimitCapability(
        kind="none",
        source="Onyx user manual, Shared Buffer Commands: no limit per traffic class in the simple mode; the "
        "advanced mode replaces the buffer configuration of the whole switch, so it is left as it is",
    ),
    averaging="none, the instantaneous queue length (Mellanox SAI, averaging weight 0; inferred for Onyx)",
    marks_at="dequeue",
    port_numbering=PortNumbering(pattern="1/{n}"),
    port_count=16,
    unverified=(
        "congestion-control both: marks ECN-capable packets and drops the others above the threshold",
        "congestion-control: KB is 1024 B",
        "congestion-control: the switch acts on the instantaneous queue length by default",
        "congestion-control: the greatest threshold that the command line accepts",
        "show interfaces congestion-control: how it prints the mode of `both`",
        "strict traffic classes: the higher number is served first",
        "marks at dequeue, drops at enqueue",
        "qos trust port: every packet gets the port's default switch-priority, whatever its VLAN tag or DSCP "
        "says",
        "show dcb priority-flow-control: a port with PFC shows it as enabled, in operation or by hand",
        "no cli default prefix-modes enable: a setting of the whole switch, saved with the rest; a form for "
        "one session is documented for sister products only",
    ),
)
HARDWARE = MappingProxyType({SN2100.hardware: SN2100})
