"""What Spectrum switches can do under Onyx."""

from types import MappingProxyType
from typing import Final

from mltswitch.capabilities import Capabilities, LimitCapability, PortNumbering, unverified
from mltswitch.capabilities.hardware import box, chip, require, threshold_capability

_CHIP: Final = chip("spectrum")
_THRESHOLD: Final = threshold_capability(_CHIP)
"""Its step, 6144 B, is also a whole number of the KB in which the command line counts."""
TRAFFIC_CLASSES: Final = require(_CHIP.unicast_queues)
LOSSLESS: Final = (3, 4)
"""Traffic classes that a plan leaves to lossless classes: the priorities with PFC in RoCE guides."""

_UNVERIFIED: Final = unverified(
    "onyx",
    {
        "red-per-packet": "congestion-control both: marks ECN-capable packets and drops the others above "
        "the threshold",
        "threshold-unit": "congestion-control: KB is 1024 B",
        "queue-length": "congestion-control: the switch acts on the instantaneous queue length by default",
        "largest-threshold": "congestion-control: the greatest threshold that the command line accepts",
        "mode-shown": "show interfaces congestion-control: how it prints the mode of `both`",
        "bandwidth-shown": "show dcb ets: how it prints a bandwidth that somebody gave a traffic class; "
        "without one, BW Gr.(Mbps) is 0 and BW Sh.(Mbps) is N/A",
        "strict-order": "strict traffic classes: the higher number is served first",
        "marking-point": "marks at dequeue, drops at enqueue",
        "trust-port": "qos trust port: every packet gets the port's default switch-priority, whatever its "
        "VLAN tag or DSCP says",
        "pfc-shown": "show dcb priority-flow-control: a port with PFC shows it as enabled, in operation or "
        "by hand",
        "pause-shown": "show running-config: prints link pause in the words of its command, flowcontrol "
        "receive on force",
        "mark-shown": "ipv4 access-list: one that is empty and not bound is shown, and does nothing",
        "prefix-modes": "no cli default prefix-modes enable: a setting of the whole switch, saved with the "
        "rest; a form for one session is documented for sister products only",
    },
)


def _spectrum(hardware: str, description: str) -> Capabilities:
    return Capabilities(
        platform="onyx",
        hardware=hardware,
        description=f"{description} under Onyx 3.7-3.10",
        queues=tuple(reversed(range(TRAFFIC_CLASSES))),
        lossless_queues=LOSSLESS,
        threshold=_THRESHOLD,
        limit=LimitCapability(
            kind="none",
            source="Onyx user manual, Shared Buffer Commands: no limit per traffic class in the simple mode; "
            "the advanced mode replaces the buffer configuration of the whole switch, so it is left as it is",
        ),
        averaging="none, the instantaneous queue length (Mellanox SAI, averaging weight 0; inferred for "
        "Onyx)",
        marks_at="dequeue",
        # Onyx 3.10 user manual, Ethernet Interfaces: 1/10/1 to 1/10/4; qsfp-split-4 blocks other ports: those
        # of an SN2700 that Cumulus Linux switches off.
        port_numbering=PortNumbering(
            pattern="1/{n}",
            lanes=4,
            lane_pattern="1/{n}/{lane}",
            full_breakout_ports=2 if hardware == "sn2700" else 1,
        ),
        ports=require(box(hardware).ports),
        # The chip has both for each traffic class (`show dcb ets`); no source that we found has the commands.
        minimum_bandwidth=None,
        maximum_bandwidth=None,
        remaps_host_control=True,
        unverified=_UNVERIFIED,
    )


SN2100: Final = _spectrum("sn2100", "NVIDIA SN2100 (Spectrum, 16 x 100G)")
SN2700: Final = _spectrum("sn2700", "NVIDIA SN2700 (Spectrum, 32 x 100G)")
HARDWARE = MappingProxyType({model.hardware: model for model in (SN2100, SN2700)})
