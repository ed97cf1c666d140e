"""What Spectrum switches can do under SONiC."""

from types import MappingProxyType

from mltswitch.capabilities import Capabilities, LimitCapability, PortNumbering, ThresholdCapability

THRESHOLD_STEP_BYTES = 64 * 96
LARGEST_THRESHOLD_BYTES = (2**31 - 1) // THRESHOLD_STEP_BYTES * THRESHOLD_STEP_BYTES
POOL = "egress_lossy_pool"
POOL_BYTES = 4_580_864
TRAFFIC_CLASSES = 8
LOSSLESS = (3, 4)
"""Queues, and priority groups, that the vendor's default makes lossless."""

_LOSSLESS_REASON = "lossless by SONiC's default template (files/build_templates/qos_config.j2)"

SN2700 = Capabilities(
    platform="sonic",
    hardware="sn2700",
    description="NVIDIA SN2700 (Spectrum, 32 x 100G) under community SONiC",
    queues=tuple(queue for queue in reversed(range(TRAFFIC_CLASSES)) if queue not in LOSSLESS),
    reserved_queues=tuple((queue, _LOSSLESS_REASON) for queue in LOSSLESS),
    threshold=ThresholdCapability(
        step_bytes=THRESHOLD_STEP_BYTES,
        minimum_bytes=THRESHOLD_STEP_BYTES,
        maximum_bytes=LARGEST_THRESHOLD_BYTES,
        source="step: Linux mlxsw reg.h, register CWTP: 64 cells of 96 B, rounded up; maximum: "
        "sonic-swss orchagent/qosorch.cpp reads thresholds with stoi",
    ),
    limit=LimitCapability(
        kind="alpha",
        alpha_exponents=tuple(range(-7, 7)),
        pool_bytes=POOL_BYTES,
        source="alpha: Mellanox SAI, mlnx_sai_buffer.c: dynamic_th -7..6 is 1/128..64; "
        "pool: sonic-buildimage device/mellanox/x86_64-mlnx_msn2700-r0 buffers_defaults_t0.j2",
    ),
    averaging="none, the instantaneous queue length (orchagent sets the averaging weight 0)",
    marks_at="dequeue",
    port_numbering=PortNumbering(pattern="Ethernet{n}", first=0, step=4),
    port_count=32,
    unverified=(
        "strict queues: the higher number is served first",
        f"{POOL} has {POOL_BYTES} B also where the device does not say so, and other queues leave it free",
        "ecn_green with yellow and red off in the newest SAI of the vendor",
        "code points that led to the lossless queues become background unless the fabric names them",
        "config apply-patch takes a port down and up when it changes the port's queues or maps",
    ),
)
HARDWARE = MappingProxyType({SN2700.hardware: SN2700})
