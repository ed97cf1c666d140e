"""What Spectrum switches can do under Cumulus Linux.

Sources: CL-D is the Cumulus Linux 5.x user guide, Quality of Service
(https://docs.nvidia.com/networking-ethernet-software/cumulus-linux-514/Layer-1-and-Switch-Ports/Quality-of-Service/);
CWTP is the register of that name in the Linux driver mlxsw (drivers/net/ethernet/mellanox/mlxsw/reg.h).
"""

from types import MappingProxyType
from typing import Final

from mltswitch.capabilities import Capabilities, LimitCapability, PortNumbering, ThresholdCapability

TRAFFIC_CLASSES: Final = 8
CPU_PRIORITY: Final = 3
"""Switch priority, and queue, of packets that the switch itself sends."""
_THRESHOLD_STEP_CELLS: Final = 64

_STRICT_QUEUES: Final = tuple(queue for queue in reversed(range(TRAFFIC_CLASSES)) if queue != CPU_PRIORITY)
_UNVERIFIED: Final = (
    "congestion-control with ecn enable and red enable: marks ECN-capable packets and drops the others above "
    "the threshold (the flags of the chip say so, the user guide does not)",
    "congestion-control: NVUE takes a min-threshold that equals the max-threshold",
    "congestion-control: a traffic class with ecn disable and red disable needs no thresholds",
    "congestion-control: the switch acts on the instantaneous queue length",
    "congestion-control: thresholds read back as they were set, not as the chip rounds them",
    "strict traffic classes: the higher number is served first",
    "marks at dequeue, drops at enqueue",
    "trust port: every packet gets port-default-sp, whatever its VLAN tag or DSCP says",
    "queue 3: which queue packets take that the switch itself sends; where it is this one, strict classes "
    "above it can starve them",
    "nv config apply: how long traffic is disturbed when QoS profiles change",
    "nv: a refused command ends with an exit status other than 0",
    "nv config show -o json: where it joins equal ports to a range",
    "releases above 5.14: the same options (the user guide was read up to 5.14)",
)


def _spectrum(
    hardware: str, description: str, cell_bytes: int, pool_bytes: int, sources: str
) -> Capabilities:
    step_bytes = cell_bytes * _THRESHOLD_STEP_CELLS
    return Capabilities(
        platform="cumulus",
        hardware=hardware,
        description=f"{description} under Cumulus Linux 5.4 and later (NVUE)",
        queues=_STRICT_QUEUES,
        reserved_queues=(
            (
                CPU_PRIORITY,
                "qos_features.conf as delivered: internal cos 3 is reserved for CPU-generated traffic (CL-D)",
            ),
        ),
        threshold=ThresholdCapability(
            step_bytes=step_bytes,
            minimum_bytes=step_bytes,
            maximum_bytes=pool_bytes // step_bytes * step_bytes,
            source=f"step: CWTP, 64 cells of {cell_bytes} B, rounded up, 0 refused; {sources}",
        ),
        limit=LimitCapability(
            kind="none",
            source="CL-D, Advanced Buffer Tuning: limits per traffic class exist for the profile "
            "default-global only, so for all ports of the switch alike; they are left as they are",
        ),
        averaging="none, the instantaneous queue length (Mellanox SAI, averaging weight 0; inferred for "
        "Cumulus Linux)",
        marks_at="dequeue",
        port_numbering=PortNumbering(pattern="swp{n}"),
        port_count=16 if hardware == "sn2100" else 32,
        unverified=_UNVERIFIED,
    )


_POOLS: Final = (
    "maximum: the largest pool that SONiC gives the chip (sonic-utilities, mellanox_buffer_migrator.py)"
)
_SPECTRUM_1: Final = f"cell: Linux mlxsw, Spectrum-1; {_POOLS}"
_SPECTRUM_2: Final = f"cell: SONiC doc/qos/dynamically-headroom-calculation.md, MELLANOX-SPECTRUM-2; {_POOLS}"

SN2100 = _spectrum("sn2100", "NVIDIA SN2100 (Spectrum, 16 x 100G)", 96, 13_945_824, _SPECTRUM_1)
SN2700 = _spectrum("sn2700", "NVIDIA SN2700 (Spectrum, 32 x 100G)", 96, 13_945_824, _SPECTRUM_1)
SN3700 = _spectrum("sn3700", "NVIDIA SN3700 (Spectrum-2, 32 x 200G)", 144, 34_287_552, _SPECTRUM_2)
HARDWARE = MappingProxyType({model.hardware: model for model in (SN2100, SN2700, SN3700)})
