"""What Spectrum switches can do under Cumulus Linux.

Sources: CL-D is the Cumulus Linux 5.x user guide, Quality of Service
(https://docs.nvidia.com/networking-ethernet-software/cumulus-linux-514/Layer-1-and-Switch-Ports/Quality-of-Service/);
CWTP and QEEC are the registers of these names in the Linux driver mlxsw
(drivers/net/ethernet/mellanox/mlxsw/reg.h). CL-A is the user guide's Access Control List Configuration
(.../cumulus-linux-514/System-Configuration/Access-Control-Lists/; in 5.4, Netfilter - ACLs).
"""

from types import MappingProxyType
from typing import Final

from mltswitch.capabilities import (
    BandwidthCapability,
    Capabilities,
    LimitCapability,
    PortNumbering,
    unverified,
)
from mltswitch.capabilities.hardware import box, chip, require, threshold_capability

TRAFFIC_CLASSES: Final = 8
CPU_PRIORITY: Final = 3
"""Switch priority, and number of the queue, of packets that the switch itself sends."""
KILOBIT: Final = 1000
LARGEST_RATE_KBPS: Final = 2**31 - 1
SMALLEST_RATE_BPS: Final = 200 * 10**6
_STRICT_QUEUES: Final = tuple(queue for queue in reversed(range(TRAFFIC_CLASSES)) if queue != CPU_PRIORITY)
_UNVERIFIED: Final = unverified(
    "cumulus",
    {
        "red-per-packet": "congestion-control with ecn enable and red enable: marks ECN-capable packets and "
        "drops the others above the threshold (the flags of the chip say so, the user guide does not)",
        "equal-thresholds": "congestion-control: NVUE takes a min-threshold that equals the max-threshold",
        "no-thresholds": "congestion-control: a traffic class with ecn disable and red disable needs no "
        "thresholds",
        "queue-length": "congestion-control: the switch acts on the instantaneous queue length",
        "thresholds-shown": "congestion-control: thresholds read back as they were set, not as the chip "
        "rounds them",
        "minimum-rate": "egress-shaper min-rate: a class is served at it ahead of strict classes above it "
        "(CL-D calls it a bandwidth guarantee, and says elsewhere that strict classes can starve others)",
        "rate-headers": "egress-shaper min-rate and max-rate: which headers of a frame count",
        "one-rate": "egress-shaper: a class that names one of both rates has the default of the other",
        "strict-order": "strict traffic classes: the higher number is served first",
        "marking-point": "marks at dequeue, drops at enqueue",
        "trust-port": "trust port: every packet gets port-default-sp, whatever its VLAN tag or DSCP says",
        "cpu-queue": "queue 3: which queue packets take that the switch itself sends; where it is this one, "
        "strict classes above it can starve them",
        "acl-ingress": "acl: inbound lists of a port rewrite in hardware, as packets arrive (CL-A has such "
        "examples; CL-D, Policy-based Marking, speaks of packets that leave)",
        "acl-ipv6": "acl: action set dscp in a list of type ipv6 (the examples of CL-A are of type ipv4)",
        "acl-match-number": "acl: match ip dscp takes a number, as action set dscp does (the reference has "
        "af13 as its example)",
        "acl-two-lists": "acl: a port takes two lists inbound, one of type ipv4 and one of type ipv6",
        "acl-bond-member": "acl: inbound lists act on ports that belong to a bond",
        "acl-ecn": "acl: action set dscp leaves the ECN bits as they are",
        "acl-control-plane": "acl: lists of the control plane see packets that an inbound list has matched",
        "acl-shown": "acl: nv config show prints the code points of rules as numbers, and what is bound as "
        "an object without attributes",
        "apply-disturbance": "nv config apply: how long traffic is disturbed when QoS profiles change",
        "pending-revision": "nv config diff: shows what an earlier session of the same user left pending, "
        "and nv config detach drops it",
        "refusal-status": "nv: a refused command ends with an exit status other than 0",
        "equal-ports-shown": "nv config show -o json: where it joins equal ports to a range",
    },
)


def _spectrum(hardware: str, description: str) -> Capabilities:
    of = box(hardware)
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
        threshold=threshold_capability(chip(of.chip)),
        limit=LimitCapability(
            kind="none",
            source="CL-D, Advanced Buffer Tuning: limits per traffic class exist for the profile "
            "default-global only, so for all ports of the switch alike; they are left as they are",
        ),
        averaging="none, the instantaneous queue length (Mellanox SAI, averaging weight 0; inferred for "
        "Cumulus Linux)",
        marks_at="dequeue",
        # Cumulus Linux 5.6 user guide, Switch Port Attributes: of the SN2700, only upper ports in four.
        port_numbering=PortNumbering(
            pattern="swp{n}",
            lanes=4,
            lane_pattern="swp{n}s{lane}",
            first_lane=0,
            full_breakout_ports=2 if hardware == "sn2700" else 1,
            lag_pattern="bond{n}",
        ),
        ports=require(of.ports),
        minimum_bandwidth=BandwidthCapability(
            kind="rate",
            source="CL-D, Shaping: egress-shaper, min-rate in kbit/s; smallest: QEEC, 200 Mbit/s",
            step_bps=KILOBIT,
            minimum_bps=SMALLEST_RATE_BPS,
            maximum_bps=LARGEST_RATE_KBPS * KILOBIT,
        ),
        maximum_bandwidth=BandwidthCapability(
            kind="rate",
            source="CL-D, Shaping: egress-shaper, max-rate in kbit/s; smallest: Mellanox SAI, "
            "mlnx_sai_scheduler.c: less than 200 Mbit/s is taken for 0",
            step_bps=KILOBIT,
            minimum_bps=SMALLEST_RATE_BPS,
            maximum_bps=LARGEST_RATE_KBPS * KILOBIT,
        ),
        rewrites_code_points="CL-A, Set DSCP on Transit Traffic: acl rule action set dscp, inbound on a port",
        remaps_host_control=True,
        unverified=_UNVERIFIED,
    )


SN2100 = _spectrum("sn2100", "NVIDIA SN2100 (Spectrum, 16 x 100G)")
SN2700 = _spectrum("sn2700", "NVIDIA SN2700 (Spectrum, 32 x 100G)")
SN3700 = _spectrum("sn3700", "NVIDIA SN3700 (Spectrum-2, 32 x 200G)")
HARDWARE = MappingProxyType({model.hardware: model for model in (SN2700, SN2100, SN3700)})
