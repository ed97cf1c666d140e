"""What switches can do under FASTPATH; its RED thresholds are percentages of a size that few documents tell.

Sources by short name:

- UCG: Dell EMC Networking N-Series User's Configuration Guide, Class-of-Service, and its command reference
  (manualshelf.com: N4000 Administrator Guide p. 1476, N2100 Administrator Guide p. 724-727, N3100 Users Guide
  p. 1550).
- M4300: NETGEAR M4300 CLI manual, Quality of Service Commands (a FASTPATH derivative).
- MIB: FASTPATH-QOS-COS-MIB and DNOS-QOS-COS-MIB (mibs.observium.org).
- EXTR200: Extreme Networks 200 Series CLI reference (documentation.extremenetworks.com/200_commands).
"""

import re
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
from mltswitch.capabilities.hardware import hardware_data, require

PLATFORM: Final = "icos"
QUEUE_COUNT: Final = 7
"""How many CoS queues plans can use: 0 to 6; 7 is the system's (UCG; M4300: traffic classes 0 to 6)."""
USER_PRIORITIES: Final = 8
GREATEST_PERCENT: Final = 100
"""The highest threshold in percent; greater ones are accepted where the queue may borrow (UCG, an example
with 200), but not by every document."""
COLOURS: Final = 4
"""How many columns a RED parameter has: green, yellow and red TCP, and all else (UCG, M4300, EXTR200)."""


_SERIES: Final = MappingProxyType(
    {"N40": "n4000", "N20": "n3000", "N21": "n3000", "N30": "n3000", "N31": "n3000"},
)
"""How the names of a series of Dell's begin, of which a document names the scale → model."""


def model_of(name: str) -> str | None:
    """The model in a switch's own name for itself, such as N4032F; None: no document tells its scale."""
    match = re.fullmatch(r"(N[0-9]{2})[0-9]{2}[A-Z-]*", name.strip().upper())
    return None if match is None else _SERIES.get(match[1])


UNVERIFIED: Final = unverified(
    PLATFORM,
    {
        "mark-shown": "class-map: one without a match is shown, and does nothing",
        "udp-marking": "random-detect ... ecn marks packets that are not TCP: the documents speak of TCP, "
        "and MLT sends UDP",
        "red-per-packet": "random-detect with min-thresh = max-thresh: at the threshold every ECN-capable "
        "packet is marked and every other one dropped",
        "queue-length": "random-detect exponential-weighting-constant 0: the instantaneous queue length",
        "weight-per-interface": "random-detect exponential-weighting-constant: accepted on an interface, "
        "not only for the whole switch",
        "red-spelling": "random-detect queue-parms: `drop-prob-scale` and `ecn` are the words of Dell's "
        "N-series; NETGEAR and Extreme write `drop-probability` and document no ecn",
        "extreme-congestion": "random-detect: `extreme congestion` may drop ECN-capable packets, too; where "
        "that begins is not documented",
        "strict-order": "cos-queue strict: the higher queue number is served first",
        "system-queues": "cos-queue: queues 4 to 6 may carry packets of the system itself, such as routing "
        "protocols",
        "minimum-bandwidth": "cos-queue min-bandwidth: background, weighted, gets its share however much "
        "waits in the strict queues (UCG: minimums override strict priority; MIB: ignored for a strict "
        "queue, so background is not strict)",
        "eight-minimums": "cos-queue min-bandwidth: seven values, as in UCG's example; a FASTPATH that lets "
        "queue 7 be configured wants eight",
        "policy-precedence": "service-policy in, assign-queue: on a port that trusts ip-dscp its queue "
        "comes before that of the DSCP map, and packets of no class are treated as without it",
        "ipv6-class": "class-map ... ipv6 with match ip dscp: M4300 has it, no page of a Dell N-series "
        "manual was found",
        "policy-entry": "policy-map NAME in, and class NAME in it: entered again, they open what is there",
        "policy-everything": "match any in a class of IPv4 or of IPv6: every packet of its version of IP; "
        "M4300 has it, no page of a Dell N-series manual was found",
        "mark-ecn": "mark ip-dscp: also written into packets of a port that trusts nothing, and the ECN bits "
        "stay",
        "mark-values": "mark ip-dscp: Dell's manual lists the code points that have names; M4300 takes every "
        "one. It concerns backgrounds whose code point has no name",
        "policy-shown": "class-map, policy-map, service-policy: how the running configuration prints them",
        "untrusted-priority": "classofservice trust untrusted: a packet goes where dot1p-mapping sends the "
        "port's default priority",
        "shows-layout": "show interfaces random-detect has the form that Dell prints; of show "
        "classofservice and show interfaces cos-queue only the names of the fields are documented: another "
        "layout is an error, not a guess",
        "default-priority-shown": "vlan priority: how the running configuration prints a port's default "
        "priority",
        "save-question": "write memory confirm: saves without a question on every FASTPATH",
        "marking-point": "marks at enqueue",
    },
)


def percent_step_bytes(full_scale_bytes: int) -> int:
    """Bytes of one percent of the threshold scale, rounded down: the ECN threshold S is at most 0.02 %
    below the switch's.
    """
    return full_scale_bytes // 100


def _model(hardware: str, description: str, full_scale_bytes: int, source: str) -> Capabilities:
    step = percent_step_bytes(full_scale_bytes)
    return Capabilities(
        platform=PLATFORM,
        hardware=hardware,
        description=description,
        queues=tuple(reversed(range(QUEUE_COUNT))),
        reserved_queues=((7, "reserved by the system, not assignable (UCG, Class-of-Service)"),),
        threshold=ThresholdCapability(
            step_bytes=step,
            minimum_bytes=step,
            maximum_bytes=step * GREATEST_PERCENT,
            source=f"{source}; whole percents (M4300, EXTR200: queue depth as a percentage)",
        ),
        limit=LimitCapability(
            kind="none",
            source="UCG, M4300: no limit per queue; an ECN-capable packet is lost where the chip runs out of "
            "buffer",
        ),
        averaging="exponential; weighting constant 0 is set, in sources the way to the instantaneous length "
        "(UCG, DCTCP example)",
        marks_at="enqueue",
        port_numbering=PortNumbering(pattern="te1/0/{n}"),
        minimum_bandwidth=BandwidthCapability(
            kind="percent",
            source="cos-queue min-bandwidth: 0 to 100 % of the port's rate in whole percents, all queues in "
            "one line (UCG, with 5 5 10 10 0 0 0; M4300)",
        ),
        guarantees_last_alone=True,
        rewrites_code_points="`mark ip-dscp` beside `assign-queue` in a DiffServ policy: M4300, and Dell "
        "N-series command reference (N1500 Administrator Guide p. 687); `match any` in a class: M4300",
        remaps_host_control=True,
        unverified=UNVERIFIED,
    )


_DESCRIPTIONS: Final = {
    "n4000": "Dell EMC Networking N4000 under DNOS 6, a FASTPATH",
    "n3000": "Dell EMC Networking N2000, N3000, N3100 under DNOS 6, a FASTPATH",
}
_SCALES: Final = hardware_data().fastpath_scale_bytes
"""Model → waiting bytes of an interface that a threshold of 100 % stands for, as far as a document says."""
HARDWARE: Final = MappingProxyType(
    {
        name: _model(name, description, require(_SCALES[name]), _SCALES[name].source)
        for name, description in _DESCRIPTIONS.items()
    }
)
REFUSED: Final = MappingProxyType(
    {
        name: "no public document says how many bytes 100 % of a threshold is on this chip (looked for: "
        f"{scale.source}), so no threshold can be rendered for it"
        for name, scale in _SCALES.items()
        if scale.value is None
    }
)
