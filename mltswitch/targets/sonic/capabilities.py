"""What the boxes that community SONiC runs on can do.

Sources: SB is sonic-net/sonic-buildimage, SM sonic-net/sonic-mgmt, SWSS sonic-net/sonic-swss, MLNX-SAI
Mellanox/SAI-Implementation of December 2023, HLD the project's design doc/qos/scheduler/
SONiC_QoS_Scheduler_Shaper.md.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from mltswitch.capabilities import (
    BandwidthCapability,
    Capabilities,
    LimitCapability,
    PortNumbering,
    ThresholdCapability,
    unverified,
)
from mltswitch.capabilities.hardware import (
    box,
    chip,
    require,
    threshold_step_bytes,
    threshold_step_source,
)

POOL: Final = "egress_lossy_pool"
TRAFFIC_CLASSES: Final = 8
LOSSLESS: Final = (3, 4)
"""Queues, and priority groups, that the vendor's default makes lossless."""
BITS: Final = 8
"""Bits in the unit of rates in the table SCHEDULER, which counts bytes a second."""

_SRV6: Final = (
    "SB sonic-srv6.yang and bgpcfgd managers_srv6.py: SRV6_MY_LOCATORS and SRV6_MY_SIDS, behaviour uN; "
    "static routes: sonic-static-route.yang"
)
_UNVERIFIED: Final = {
    "strict-order": "strict queues: the higher number is served first",
    "lossless-code-points": "code points that led to the lossless queues become background unless the "
    "fabric names them",
    "port-restart": "config apply-patch takes a port down and up when it changes the port's queues or maps",
    "srv6-end": "SRv6: behaviour uN ends a segment like End only where the segment is the locator's "
    "address itself; the chip takes uN at the port's rate",
    "pool-share": "the pool of another buffer profile than that of a top-of-rack switch, and what other "
    "queues leave free",
}
_MELLANOX_UNVERIFIED: Final = {
    "green-alone": "ecn_green with yellow and red off in the newest SAI of the vendor",
    "filler-minimum": "a cap's cir of 1 byte a second guarantees nothing (MLNX-SAI takes less than 200 "
    "Mbit/s for 0)",
    "no-minimum": "no guarantee for background: MLNX-SAI mlnx_sai_scheduler.c computes a queue's "
    "minimum from a field that is still 0, so `cir` never reaches the chip; nobody has looked at newer "
    "ones",
    "red-profiles": "how many RED profiles there are: the vendor's library knows "
    "(cos_redecn_profiles_max), no document says",
}
_BROADCOM_UNVERIFIED: Final = {
    "threshold-cells": "the vendor's SAI, whose source is closed, rounds thresholds to whole cells",
    "red-per-packet": "wred_green_enable with ecn_green marks ECN-capable packets and drops the others "
    "on this chip",
    "minimum-before-strict": "a minimum is served before strict queues above it (the HLD says so of "
    "every chip)",
    "rate-steps": "to which steps the chip rounds cir and pir, and that a cap's cir of 1 byte a second "
    "guarantees nothing",
    "alpha-range": "alpha: which of dynamic_th -7 to 3 the vendor's SAI takes for a queue",
    "red-profiles": "how many RED profiles there are: no public document says",
}


class Model(NamedTuple):
    """One hardware model: how its configuration tells it from others, and what it can do."""

    hardware: str
    box: str
    """The model's name among the hardware figures."""
    platforms: str
    """Possible values of `platform` in DEVICE_METADATA|localhost, separated by spaces (SB, device/)."""
    hwskus: str
    """Possible beginnings of `hwsku` in DEVICE_METADATA|localhost."""

    @property
    def pool_size_bytes(self) -> int:
        """`size` of the pool in the configuration of a top-of-rack switch: of all parts of the buffer."""
        return require(box(self.box).lossy_pool_bytes)

    @property
    def capabilities(self) -> Capabilities:
        """What a plan may ask of this box under SONiC."""
        typical = box(self.box)
        inside = chip(typical.chip)
        chip_name = inside.description.removeprefix("NVIDIA ").partition(" (")[0]
        first, *others = require(typical.ports)
        step_bytes, parts = threshold_step_bytes(inside), require(inside.buffer_parts)
        is_mellanox = typical.chip.startswith("spectrum")
        pool, doubts = typical.lossy_pool_bytes.source, dict[str, str]()
        if parts > 1:
            pool += f"; one of {parts} parts: {inside.buffer_parts.source}"
            doubts["buffer-parts"] = (
                "each of the buffer's four parts has a quarter of the pool, and a queue's packets lie "
                "in one part"
            )
        if inside.marks_at.value is None:
            doubts["marking-point"] = f"marks at dequeue: {inside.marks_at.source}"
        doubts |= _UNVERIFIED | (_MELLANOX_UNVERIFIED if is_mellanox else _BROADCOM_UNVERIFIED)
        return Capabilities(
            platform="sonic",
            hardware=self.hardware,
            description=f"{typical.description} ({chip_name}, {first.count} x {first.rate_bps // 10**9}G) "
            "under community SONiC",
            queues=tuple(queue for queue in reversed(range(TRAFFIC_CLASSES)) if queue not in LOSSLESS),
            reserved_queues=tuple(
                (queue, "lossless by SONiC's default template (files/build_templates/qos_config.j2)")
                for queue in LOSSLESS
            ),
            lossless_queues=LOSSLESS,
            threshold=ThresholdCapability(
                step_bytes=step_bytes,
                minimum_bytes=step_bytes,
                maximum_bytes=(2**31 - 1) // step_bytes * step_bytes,
                source=f"step: {threshold_step_source(inside)}; maximum: SWSS orchagent/qosorch.cpp reads "
                "thresholds with stoi",
            ),
            limit=LimitCapability(
                kind="alpha",
                alpha_exponents=tuple(range(-7, 7 if is_mellanox else 4)),
                pool_bytes=self.pool_size_bytes // parts,
                source=f"alpha: {_MELLANOX_ALPHA if is_mellanox else _BROADCOM_ALPHA}; pool: {pool}",
            ),
            averaging="none, the instantaneous queue length (SWSS orchagent/qosorch.cpp sets the weight 0)",
            marks_at="dequeue",
            # SB, platform.json and port_config.ini of these boxes: Ethernet0 to 3, or 0 and 2.
            port_numbering=PortNumbering(
                pattern="Ethernet{n}",
                first=0,
                step=4,
                lanes=4,
                skips_lanes=True,
                full_breakout_ports=2 if self.hardware == "sn2700" else 1,
                lag_pattern="PortChannel{n}",
            ),
            ports=(first, *others),
            minimum_bandwidth=None if is_mellanox else _BROADCOM_MINIMUM,
            maximum_bandwidth=_MELLANOX_MAXIMUM if is_mellanox else _BROADCOM_MAXIMUM,
            remaps_host_control=True,
            segment_routing=_SRV6,
            unverified=unverified("sonic", doubts),
        )


_MELLANOX_ALPHA: Final = "MLNX-SAI mlnx_sai_buffer.c: dynamic_th -7 to 6 is 1/128 to 64"
_BROADCOM_ALPHA: Final = "OpenBCM, bcmCosqControlDropLimitAlpha: 1/128 to 8"
_BROADCOM_MINIMUM: Final = BandwidthCapability(
    kind="rate",
    source="HLD, section 1: queues below their minimum (cir) are served first",
    step_bps=BITS,
    minimum_bps=2 * BITS,
)
_BROADCOM_MAXIMUM: Final = replace(
    _BROADCOM_MINIMUM, source="HLD, section 1: queues above their maximum (pir) are not served"
)
_MELLANOX_MAXIMUM: Final = BandwidthCapability(
    kind="rate",
    source="MLNX-SAI mlnx_sai_scheduler.c: pir in kbit/s, and less than 200 Mbit/s is taken for 0",
    step_bps=1000,
    minimum_bps=200_000_000,
)
MODELS: Final = (
    Model(
        "sn2700", "sn2700", "x86_64-mlnx_msn2700-r0 x86_64-mlnx_msn2700a1-r0", "ACS-MSN2700 Mellanox-SN2700"
    ),
    Model("sn2100", "sn2100", "x86_64-mlnx_msn2100-r0", "ACS-MSN2100 Mellanox-SN2100"),
    Model(
        "sn3700", "sn3700", "x86_64-mlnx_msn3700-r0 x86_64-mlnx_msn3700c-r0", "ACS-MSN3700 Mellanox-SN3700"
    ),
    Model("trident3", "7050cx3-32s", "x86_64-arista_7050cx3_32s", "Arista-7050CX3-32S"),
    Model("tomahawk", "7060cx-32s", "x86_64-arista_7060_cx32s", "Arista-7060CX-32S"),
    Model("tomahawk2", "7260cx3-64", "x86_64-arista_7260cx3_64", "Arista-7260CX3"),
)
HARDWARE: Final[Mapping[str, Capabilities]] = MappingProxyType(
    {model.hardware: model.capabilities for model in MODELS}
)


def model_of(platform: str, hwsku: str = "") -> Model | None:
    """The model of a device by its platform and hwsku texts; None for an unknown one.

    The hwsku counts where the platform text is missing; it names the box, then how its ports are split.
    """
    if platform:
        return next((model for model in MODELS if platform in model.platforms.split()), None)
    return next((model for model in MODELS if hwsku.startswith(tuple(model.hwskus.split()))), None)
