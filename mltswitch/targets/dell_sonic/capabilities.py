"""What Broadcom switches can do under Enterprise SONiC: Dell's distribution, and Broadcom's own.

Sources by short name:

- KLISH: the command tree of the management framework, Broadcom's branches 3.1 to 3.x as published
  (sonic-mgmt-framework, CLI/clitree/cli-xml: wred.xml, qos_scheduler.xml, qos_interface.xml, qos_map_*.xml,
  route_static.xml; CLI/actioner), and what checks its values (sonic-mgmt-common, translib/transformer/
  xfmr_qos_*.go, branch dell_sonic_3.x).
- HLD: SONiC_QoS_Mgmt_HLD and Broadcom's "RoCEv2" design (lossless buffers, `roce enable`, buffer commands).
- FBS: Broadcom's design "ACL and Flow Based Services", 0.7 (class-maps, policy-maps; in KLISH
  flow_based_services.xml, show_config_fbs.py; in sonic-mgmt-common fbs_app.go).
- DELL: the Ansible collection dellemc.enterprise_sonic 4.0, modules sonic_qos_* and sonic_fbs_*.
- AMD: "GPU cluster networking" of AMD Instinct, the running configuration of a Z9664F.
"""

from types import MappingProxyType
from typing import Final

from mltswitch.capabilities import (
    BandwidthCapability,
    Capabilities,
    LimitCapability,
    PortNumbering,
    ThresholdCapability,
    unverified,
)
from mltswitch.capabilities.hardware import chip, threshold_step_source

PLATFORM: Final = "dell-sonic"
QUEUE_COUNT: Final = 8
LOSSLESS: Final = (3, 4)
"""Numbers of the queues, traffic classes and priority groups that this OS keeps for lossless traffic."""
KILOBYTE: Final = 1000
"""Bytes of one KB of a threshold: the command line multiplies by 1000 (KLISH, sonic_cli_wred.py)."""
LARGEST_KILOBYTES: Final = 12_480
BITS_OF_KBPS: Final = 1000
SMALLEST_KBPS: Final = 32
LARGEST_KBPS: Final = 400_000_000

_LOSSLESS_REASON: Final = (
    "reserved for lossless traffic: `buffer init lossless` and `roce enable` make it lossless for good (HLD)"
)
_LIMIT: Final = LimitCapability(
    kind="none",
    source="HLD, DELL: buffer profiles exist only after `buffer init lossless` and a reboot, and are not to "
    "be changed under traffic; without them a queue may take 8 times the free shared buffer (alpha 2^3)",
)
_RATE_SOURCE: Final = (
    "whole kbit/s, {word} of a queue (KLISH, qos_scheduler.xml: 32 to 400000000 kbit/s, not above the port's "
    "speed)"
)
_MINIMUM: Final = BandwidthCapability(
    kind="rate",
    source=_RATE_SOURCE.format(word="cir") + "; a minimum that is guaranteed (HLD)",
    step_bps=BITS_OF_KBPS,
    minimum_bps=SMALLEST_KBPS * BITS_OF_KBPS,
    maximum_bps=LARGEST_KBPS * BITS_OF_KBPS,
)
_MAXIMUM: Final = BandwidthCapability(
    kind="rate",
    source=_RATE_SOURCE.format(word="pir"),
    step_bps=BITS_OF_KBPS,
    minimum_bps=SMALLEST_KBPS * BITS_OF_KBPS,
    maximum_bps=LARGEST_KBPS * BITS_OF_KBPS,
)
_UNVERIFIED: Final = unverified(
    PLATFORM,
    {
        "red-per-packet": "wred-policy with `ecn all` and green alone: marks ECN-capable packets and drops "
        "the others at the threshold (sonic-mgmt tests it with ecn_green)",
        "ecn-all": "wred-policy: every release takes `ecn all`, and it needs no yellow or red thresholds "
        "(no policer colours packets here)",
        "equal-thresholds": "wred-policy: minimum-threshold may equal maximum-threshold on the chip (the "
        "command line takes it)",
        "threshold-cell": "wred-policy: the chip rounds a threshold to its cell, less than a packet; in "
        "which direction is open",
        "threshold-reach": "wred-policy: a threshold beyond what one queue may hold never acts; what it may "
        "hold has no source here",
        "queue-length": "averaging: none, as in community SONiC",
        "marking-point": "marks at dequeue",
        "strict-order": "scheduler-policy: `type strict` serves the higher queue first, and strict queues "
        "before those that a policy does not name (3 and 4)",
        "minimum-rate": "scheduler-policy: cir of a strict queue is served before stricter queues",
        "rate-bursts": "scheduler-policy: the burst that cir and pir allow where cbs and pbs are not given",
        "scheduler-replacement": "scheduler-policy: a port takes the new policy in place of the old one "
        "without dropping packets",
        "map-replacement": "qos-map dscp-tc: a port with a new map classifies no packet by neither map "
        "meanwhile",
        "rewrite-families": "class-map: without an ethertype it matches IPv4 and IPv6 alike, by one code "
        "point or, without a match, any",
        "rewrite-ecn": "set dscp: the ECN bits stay as they are",
        "rewrite-active": "policy-map: the chip has room for it beside the ACLs and policies of others; "
        "`show service-policy interface` says (Active) or (Inactive), the running configuration does not",
        "no-dscp-map": "a port without qos-map dscp-tc: every packet is traffic class 0; that of a tagged "
        "packet that is not IP",
        "no-queue-map": "a port without qos-map tc-queue: traffic class N goes to queue N",
        "priority-group": "the priority group of a traffic class without qos-map tc-pg is lossy",
        "multicast-queues": "packets to several receivers have queues of their own, which nobody configures "
        "here",
        "unnamed-queues": "a port whose scheduler policy is replaced: queues 3 and 4 get the chip's default",
        "chip-name": "show version: names the platform and HwSKU as Dell's user guides print it, and a box "
        "that is not among those of the hardware here is told by a note",
        "mark-shown": "class-map: one without a match is shown, and does nothing",
        "second-next-hop": "routes: a second next hop of a prefix shares its traffic until the first one "
        "goes",
        "flow-control-shown": "flowcontrol receive on: the form in which a switch shows it",
        "configuration-shown": "show running-configuration: the form that Broadcom's 3.x and Dell's 4.x "
        "print; thresholds in whole KB",
        "port-naming": "interface-naming: Eth1/1 (standard) or Ethernet0 (native), as the switch is set",
        "save-question": "write memory: saves without a question",
    },
)


def _chip(
    *,
    hardware: str,
    description: str,
) -> Capabilities:
    return Capabilities(
        platform=PLATFORM,
        hardware=hardware,
        description=description,
        queues=tuple(queue for queue in reversed(range(QUEUE_COUNT)) if queue not in LOSSLESS),
        reserved_queues=tuple((queue, _LOSSLESS_REASON) for queue in LOSSLESS),
        lossless_queues=LOSSLESS,
        threshold=ThresholdCapability(
            step_bytes=KILOBYTE,
            minimum_bytes=KILOBYTE,
            maximum_bytes=LARGEST_KILOBYTES * KILOBYTE,
            source="whole KB of 1000 B, 1 to 12480 (KLISH, sonic_types.xml and sonic_cli_wred.py; DELL: 1000 "
            f"to 12480000 B); the chip holds it in steps of {threshold_step_source(chip(hardware))}",
        ),
        limit=_LIMIT,
        averaging="none, the instantaneous queue length (orchagent of community SONiC sets the weight 0)",
        marks_at="dequeue",
        # Names of the mode `interface-naming standard` (KLISH); a switch in the native mode has others.
        port_numbering=PortNumbering(
            pattern="Eth1/{n}",
            lanes=8 if hardware == "tomahawk3" else 4,
            lane_pattern="Eth1/{n}/{lane}",
        ),
        minimum_bandwidth=_MINIMUM,
        maximum_bandwidth=_MAXIMUM,
        remaps_host_control=True,
        rewrites_code_points="FBS 2.2.2, KLISH flow_based_services.xml, DELL sonic_fbs_policies: `set dscp` "
        "of a policy-map, bound by `service-policy type qos in`",
        unverified=_UNVERIFIED,
    )


TRIDENT3: Final = _chip(
    hardware="trident3",
    description="Dell S5232F-ON (Trident 3, 32 x 100G) and S5248F-ON under Enterprise SONiC",
)
TOMAHAWK2: Final = _chip(
    hardware="tomahawk2",
    description="Dell Z9264F-ON (Tomahawk 2, 64 x 100G) under Enterprise SONiC",
)
TOMAHAWK3: Final = _chip(
    hardware="tomahawk3",
    description="Dell Z9332F-ON (Tomahawk 3, 32 x 400G) under Enterprise SONiC",
)
HARDWARE: Final = MappingProxyType({each.hardware: each for each in (TRIDENT3, TOMAHAWK2, TOMAHAWK3)})
BOX_CHIPS: Final = MappingProxyType(
    {
        **dict.fromkeys(("s5232f", "s5248f"), TRIDENT3.hardware),
        "z9264f": TOMAHAWK2.hardware,
        "z9332f": TOMAHAWK3.hardware,
    }
)
"""A word in the name of a platform → its chip."""
REFUSED: Final = MappingProxyType(
    {
        "trident2": "no public list of Enterprise SONiC's switches has one with this chip",
    }
)
"""Chip for which nothing is rendered → why."""
