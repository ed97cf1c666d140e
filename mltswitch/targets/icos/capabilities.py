"""What switches can do under FASTPATH: RED thresholds are percentages, and of what, only some documents say.

Sources by short name:

- UCG: Dell EMC Networking N-Series User's Configuration Guide, Class-of-Service, and its command reference
  (manualshelf.com: N4000 Administrator Guide p. 1476, N2100 Administrator Guide p. 724-727, N3100 Users Guide
  p. 1550).
- M4300: NETGEAR M4300 CLI manual, Quality of Service Commands (a FASTPATH derivative).
- MIB: FASTPATH-QOS-COS-MIB and DNOS-QOS-COS-MIB (mibs.observium.org).
- EXTR200: Extreme Networks 200 Series CLI reference (documentation.extremenetworks.com/200_commands).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mltswitch.capabilities import (
    BandwidthCapability,
    Capabilities,
    LimitCapability,
    PortNumbering,
    ThresholdCapability,
)
from mltswitch.capabilities.hardware import hardware_data
from mltswitch.errors import UnsupportedPlanError, UserInputError

PLATFORM: Final = "icos"
QUEUE_COUNT: Final = 7
"""CoS queues 0 to 6; 7 belongs to the system (UCG; M4300: traffic classes 0 to 6)."""
USER_PRIORITIES: Final = 8
GREATEST_PERCENT: Final = 100
"""Greater ones are accepted where the queue may borrow (UCG, an example with 200); not by every document."""
COLOURS: Final = 4
"""Columns of each RED parameter: green, yellow and red TCP, and all that is not TCP (UCG, M4300, EXTR200)."""


@dataclass(frozen=True, slots=True)
class Model:
    """One hardware model."""

    name: str
    description: str
    full_scale_bytes: int | None
    """Waiting bytes of an interface that a threshold of 100 % stands for; None: no public document says."""
    source: str
    port_pattern: str


_UNKNOWN_SCALE: Final = "no public document says how many bytes 100 % of a threshold is on this chip"


def _model(name: str, description: str, port_pattern: str) -> Model:
    scale = hardware_data().fastpath_scale_bytes[name]
    source = scale.source if scale.value is not None else f"{_UNKNOWN_SCALE} (looked for: {scale.source})"
    return Model(name, description, scale.value, source, port_pattern)


N4000: Final = _model("n4000", "Dell EMC Networking N4000 under DNOS 6, a FASTPATH", "te1/0/{n}")
N3000: Final = _model(
    "n3000", "Dell EMC Networking N2000, N3000, N3100 under DNOS 6, a FASTPATH", "te1/0/{n}"
)
MODELS: Final = MappingProxyType(
    {
        model.name: model
        for model in (
            N4000,
            N3000,
            _model("trident2", "Broadcom Trident 2 under ICOS", "0/{n}"),
            _model("trident3", "Broadcom Trident 3 under ICOS", "0/{n}"),
            _model("tomahawk2", "Broadcom Tomahawk 2 under ICOS", "0/{n}"),
            _model("tomahawk3", "Broadcom Tomahawk 3 under ICOS", "0/{n}"),
        )
    }
)
_SERIES: Final = MappingProxyType(
    {"N40": N4000, "N20": N3000, "N21": N3000, "N30": N3000, "N31": N3000},
)
"""How the names of a series of Dell's begin, of which a document names the scale → model."""


def model_of(name: str) -> Model | None:
    """The model of a switch that calls itself so, such as N4032F; None: no document names its scale."""
    match = re.fullmatch(r"(N[0-9]{2})[0-9]{2}[A-Z-]*", name.strip().upper())
    return None if match is None else _SERIES.get(match[1])


SCALES: Final = tuple(
    sorted({model.full_scale_bytes for model in MODELS.values() if model.full_scale_bytes}, reverse=True)
)
DEFAULT_SCALE: Final = SCALES[0]

UNVERIFIED: Final = (
    "random-detect ... ecn marks packets that are not TCP: the documents speak of TCP, and MLT sends UDP",
    "random-detect with min-thresh = max-thresh: at the threshold every ECN-capable packet is marked and "
    "every other one dropped",
    "random-detect exponential-weighting-constant 0: the instantaneous queue length",
    "random-detect exponential-weighting-constant: accepted on an interface, not only for the whole switch",
    "random-detect queue-parms: `drop-prob-scale` and `ecn` are the words of Dell's N-series; NETGEAR and "
    "Extreme write `drop-probability` and document no ecn",
    "random-detect: `extreme congestion` may drop ECN-capable packets, too; where that begins is not "
    "documented",
    "cos-queue strict: the higher queue number is served first",
    "cos-queue: queues 4 to 6 may carry packets of the system itself, such as routing protocols",
    "cos-queue min-bandwidth: background, weighted, gets its share however much waits in the strict queues "
    "(UCG: minimums override strict priority; MIB: ignored for a strict queue, so background is not strict)",
    "cos-queue min-bandwidth: seven values, as in UCG's example; a FASTPATH that lets queue 7 be configured "
    "wants eight",
    "service-policy in, assign-queue: on a port that trusts ip-dscp its queue comes before that of the DSCP "
    "map, and packets of no class are treated as without it",
    "class-map ... ipv6 with match ip dscp: M4300 has it, no page of a Dell N-series manual was found",
    "policy-map NAME in: entered again, it opens the policy that is there",
    "class-map, policy-map, service-policy: how the running configuration prints them",
    "classofservice trust untrusted: a packet goes where dot1p-mapping sends the port's default priority",
    "show interfaces random-detect has the form that Dell prints; of show classofservice and show interfaces "
    "cos-queue only the names of the fields are documented: another layout is an error, not a guess",
    "vlan priority: how the running configuration prints a port's default priority",
    "write memory confirm: saves without a question on every FASTPATH",
    "marks at enqueue",
)


def percent_step_bytes(full_scale_bytes: int) -> int:
    """One percent, rounded down to a byte: S is then at most 0.02 % below what the switch does."""
    return full_scale_bytes // 100


def capabilities_of(model: Model) -> Capabilities:
    """The model as planning sees it; raises UserInputError where its scale is not documented."""
    if model.full_scale_bytes is None:
        documented = (other.name for other in MODELS.values() if other.full_scale_bytes is not None)
        raise UserInputError(
            f"hardware {model.name}: {model.source}, so no threshold can be rendered for it",
            expected=f"one of {', '.join(documented)}",
        )
    step = percent_step_bytes(model.full_scale_bytes)
    return Capabilities(
        platform=PLATFORM,
        hardware=model.name,
        description=model.description,
        queues=tuple(reversed(range(QUEUE_COUNT))),
        reserved_queues=((7, "reserved by the system, not assignable (UCG, Class-of-Service)"),),
        threshold=ThresholdCapability(
            step_bytes=step,
            minimum_bytes=step,
            maximum_bytes=step * GREATEST_PERCENT,
            source=f"{model.source}; whole percents (M4300, EXTR200: queue depth as a percentage)",
        ),
        limit=LimitCapability(
            kind="none",
            source="UCG, M4300: no limit per queue; an ECN-capable packet is lost where the chip runs out of "
            "buffer",
        ),
        averaging="exponential; weighting constant 0 is set, in sources the way to the instantaneous length "
        "(UCG, DCTCP example)",
        marks_at="enqueue",
        port_numbering=PortNumbering(pattern=model.port_pattern),
        minimum_bandwidth=BandwidthCapability(
            kind="percent",
            source="cos-queue min-bandwidth: 0 to 100 % of the port's rate in whole percents, all queues in "
            "one line (UCG, with 5 5 10 10 0 0 0; M4300)",
        ),
        guarantees_last_alone=True,
        remaps_host_control=True,
        unverified=UNVERIFIED,
    )


@dataclass(frozen=True, slots=True)
class Percent:
    """A threshold as the command line has it."""

    full_scale_bytes: int
    percent: int

    @property
    def size_bytes(self) -> int:
        """S in bytes."""
        return self.percent * percent_step_bytes(self.full_scale_bytes)


def percent_of(threshold_bytes: int) -> Percent | None:
    """The whole percents of the one documented scale that make these bytes.

    The steps of the scales have no common divisor, so up to 100 % no number of bytes fits two of them.
    """
    for scale in SCALES:
        percent, rest = divmod(threshold_bytes, percent_step_bytes(scale))
        if not rest and 1 <= percent <= GREATEST_PERCENT:
            return Percent(scale, percent)
    return None


def scale_of(thresholds_bytes: Iterable[int | None]) -> int:
    """The one scale of all thresholds; raises UnsupportedPlanError where there is none."""
    scales: set[int] = set()
    for threshold in thresholds_bytes:
        if threshold is None:
            continue
        percent = percent_of(threshold)
        if percent is None:
            raise UnsupportedPlanError(
                f"ECN threshold {threshold} B is no whole percent of {' or '.join(map(str, SCALES))} B"
            )
        scales.add(percent.full_scale_bytes)
    if len(scales) > 1:
        raise UnsupportedPlanError("its ECN thresholds are percents of different hardware models")
    return scales.pop() if scales else DEFAULT_SCALE
