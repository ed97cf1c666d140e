"""What the boxes that community SONiC runs on can do.

Sources: SB is sonic-net/sonic-buildimage, SM sonic-net/sonic-mgmt, SWSS sonic-net/sonic-swss, MLNX-SAI
Mellanox/SAI-Implementation of December 2023, HLD the project's design doc/qos/scheduler/
SONiC_QoS_Scheduler_Shaper.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

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

LARGEST_THRESHOLD_BYTES: Final = 2**31 - 1
"""SWSS orchagent/qosorch.cpp reads thresholds with stoi."""
POOL: Final = "egress_lossy_pool"
TRAFFIC_CLASSES: Final = 8
LOSSLESS: Final = (3, 4)
"""Queues, and priority groups, that the vendor's default makes lossless."""
BITS: Final = 8
"""SCHEDULER counts bytes a second."""

Maker = Literal["mellanox", "broadcom"]
"""Of the chip, as SONiC's images name it: whose SAI has the last word."""

_LOSSLESS_REASON: Final = "lossless by SONiC's default template (files/build_templates/qos_config.j2)"
_SRV6: Final = (
    "SB sonic-srv6.yang and bgpcfgd managers_srv6.py: SRV6_MY_LOCATORS and SRV6_MY_SIDS, behaviour uN; "
    "static routes: sonic-static-route.yang"
)
_UNVERIFIED: Final = unverified(
    "sonic",
    {
        "strict-order": "strict queues: the higher number is served first",
        "lossless-code-points": "code points that led to the lossless queues become background unless the "
        "fabric names them",
        "port-restart": "config apply-patch takes a port down and up when it changes the port's queues or "
        "maps",
        "srv6-end": "SRv6: behaviour uN ends a segment like End only where the segment is the locator's "
        "address itself; the chip takes uN at the port's rate",
        "pool-share": "the pool of another buffer profile than that of a top-of-rack switch, and what other "
        "queues leave free",
    },
)
_MELLANOX_UNVERIFIED: Final = unverified(
    "sonic",
    {
        "green-alone": "ecn_green with yellow and red off in the newest SAI of the vendor",
        "filler-minimum": "a cap's cir of 1 byte a second guarantees nothing (MLNX-SAI takes less than 200 "
        "Mbit/s for 0)",
        "no-minimum": "no guarantee for background: MLNX-SAI mlnx_sai_scheduler.c computes a queue's "
        "minimum from a field that is still 0, so `cir` never reaches the chip; nobody has looked at newer "
        "ones",
        "red-profiles": "how many RED profiles there are: the vendor's library knows "
        "(cos_redecn_profiles_max), no document says",
    },
)
_BROADCOM_UNVERIFIED: Final = unverified(
    "sonic",
    {
        "threshold-cells": "the vendor's SAI, whose source is closed, rounds thresholds to whole cells",
        "red-per-packet": "wred_green_enable with ecn_green marks ECN-capable packets and drops the others "
        "on this chip",
        "minimum-before-strict": "a minimum is served before strict queues above it (the HLD says so of "
        "every chip)",
        "rate-steps": "to which steps the chip rounds cir and pir, and that a cap's cir of 1 byte a second "
        "guarantees nothing",
        "alpha-range": "alpha: which of dynamic_th -7 to 3 the vendor's SAI takes for a queue",
        "red-profiles": "how many RED profiles there are: no public document says",
    },
)
_PARTS: Final = MappingProxyType(
    {
        "buffer-parts": "each of the buffer's four parts has a quarter of the pool, and a queue's packets "
        "lie in one part",
    }
)


@dataclass(frozen=True, slots=True)
class Model:
    """One hardware model: what it can do, and how its configuration tells it from others."""

    capabilities: Capabilities
    maker: Maker
    pool_size_bytes: int
    """`size` of the pool in the configuration of a top-of-rack switch: of all parts of the buffer."""
    platforms: tuple[str, ...]
    """DEVICE_METADATA|localhost, `platform`."""
    hwskus: tuple[str, ...]
    """With what `hwsku` begins there (SB, device/)."""


def _model(
    *,
    hardware: str,
    description: str,
    maker: Maker,
    of: str,
    platforms: tuple[str, ...],
    hwskus: tuple[str, ...],
    own: Mapping[str, str] = MappingProxyType({}),
) -> Model:
    typical = box(of)
    inside = chip(typical.chip)
    parts = require(inside.buffer_parts)
    pool_bytes = require(typical.lossy_pool_bytes)
    pool_source = typical.lossy_pool_bytes.source
    if parts > 1:
        pool_source += f"; one of {parts} parts: {inside.buffer_parts.source}"
    step_bytes = threshold_step_bytes(inside)
    if inside.marks_at.value is None:
        own = {**own, "marking-point": f"marks at dequeue: {inside.marks_at.source}"}
    capabilities = Capabilities(
        platform="sonic",
        hardware=hardware,
        description=f"{description} under community SONiC",
        queues=tuple(queue for queue in reversed(range(TRAFFIC_CLASSES)) if queue not in LOSSLESS),
        reserved_queues=tuple((queue, _LOSSLESS_REASON) for queue in LOSSLESS),
        lossless_queues=LOSSLESS,
        threshold=ThresholdCapability(
            step_bytes=step_bytes,
            minimum_bytes=step_bytes,
            maximum_bytes=LARGEST_THRESHOLD_BYTES // step_bytes * step_bytes,
            source=f"step: {threshold_step_source(inside)}; maximum: SWSS orchagent/qosorch.cpp reads "
            "thresholds with stoi",
        ),
        limit=_limit(maker, pool_bytes // parts, pool_source),
        averaging="none, the instantaneous queue length (SWSS orchagent/qosorch.cpp sets the weight 0)",
        marks_at="dequeue",
        # SB, platform.json and port_config.ini of these boxes: Ethernet0 to 3, or Ethernet0 and Ethernet2.
        port_numbering=PortNumbering(
            pattern="Ethernet{n}",
            first=0,
            step=4,
            lanes=4,
            skips_lanes=True,
            full_breakout_ports=2 if hardware == "sn2700" else 1,
            lag_pattern="PortChannel{n}",
        ),
        ports=require(typical.ports),
        minimum_bandwidth=_MINIMUM if maker == "broadcom" else None,
        maximum_bandwidth=_BROADCOM_MAXIMUM if maker == "broadcom" else _MELLANOX_MAXIMUM,
        remaps_host_control=True,
        segment_routing=_SRV6,
        unverified=(
            *unverified("sonic", own),
            *_UNVERIFIED,
            *(_MELLANOX_UNVERIFIED if maker == "mellanox" else _BROADCOM_UNVERIFIED),
        ),
    )
    return Model(capabilities, maker, pool_bytes, platforms, hwskus)


def _limit(maker: Maker, pool_bytes: int, pool_source: str) -> LimitCapability:
    mellanox = "MLNX-SAI mlnx_sai_buffer.c: dynamic_th -7 to 6 is 1/128 to 64"
    broadcom = "OpenBCM, bcmCosqControlDropLimitAlpha: 1/128 to 8"
    return LimitCapability(
        kind="alpha",
        alpha_exponents=tuple(range(-7, 7 if maker == "mellanox" else 4)),
        pool_bytes=pool_bytes,
        source=f"alpha: {mellanox if maker == 'mellanox' else broadcom}; pool: {pool_source}",
    )


_HLD: Final = "HLD, section 1: queues below their minimum (cir) are served first"
_MINIMUM: Final = BandwidthCapability(kind="rate", source=_HLD, step_bps=BITS, minimum_bps=2 * BITS)
_BROADCOM_MAXIMUM: Final = BandwidthCapability(
    kind="rate",
    source="HLD, section 1: queues above their maximum (pir) are not served",
    step_bps=BITS,
    minimum_bps=2 * BITS,
)
_MELLANOX_MAXIMUM: Final = BandwidthCapability(
    kind="rate",
    source="MLNX-SAI mlnx_sai_scheduler.c: pir in kbit/s, and less than 200 Mbit/s is taken for 0",
    step_bps=1000,
    minimum_bps=200_000_000,
)

SN2100: Final = _model(
    hardware="sn2100",
    description="NVIDIA SN2100 (Spectrum, 16 x 100G)",
    maker="mellanox",
    of="sn2100",
    platforms=("x86_64-mlnx_msn2100-r0",),
    hwskus=("ACS-MSN2100", "Mellanox-SN2100"),
)
SN2700: Final = _model(
    hardware="sn2700",
    description="NVIDIA SN2700 (Spectrum, 32 x 100G)",
    maker="mellanox",
    of="sn2700",
    platforms=("x86_64-mlnx_msn2700-r0", "x86_64-mlnx_msn2700a1-r0"),
    hwskus=("ACS-MSN2700", "Mellanox-SN2700"),
)
SN3700: Final = _model(
    hardware="sn3700",
    description="NVIDIA SN3700 (Spectrum-2, 32 x 200G)",
    maker="mellanox",
    of="sn3700",
    platforms=("x86_64-mlnx_msn3700-r0", "x86_64-mlnx_msn3700c-r0"),
    hwskus=("ACS-MSN3700", "Mellanox-SN3700"),
)
TRIDENT3: Final = _model(
    hardware="trident3",
    description="Arista 7050CX3-32S (Broadcom Trident 3, 32 x 100G)",
    maker="broadcom",
    of="7050cx3-32s",
    platforms=("x86_64-arista_7050cx3_32s",),
    hwskus=("Arista-7050CX3-32S",),
)
TOMAHAWK: Final = _model(
    hardware="tomahawk",
    description="Arista 7060CX-32S (Broadcom Tomahawk, 32 x 100G)",
    maker="broadcom",
    of="7060cx-32s",
    platforms=("x86_64-arista_7060_cx32s",),
    hwskus=("Arista-7060CX-32S",),
    own=_PARTS,
)
TOMAHAWK2: Final = _model(
    hardware="tomahawk2",
    description="Arista 7260CX3-64 (Broadcom Tomahawk 2, 64 x 100G)",
    maker="broadcom",
    of="7260cx3-64",
    platforms=("x86_64-arista_7260cx3_64",),
    hwskus=("Arista-7260CX3",),
    own=_PARTS,
)
MODELS: Final = (SN2700, SN2100, SN3700, TRIDENT3, TOMAHAWK, TOMAHAWK2)
HARDWARE: Final[Mapping[str, Capabilities]] = MappingProxyType(
    {model.capabilities.hardware: model.capabilities for model in MODELS}
)


def model_of(platform: str, hwsku: str = "") -> Model | None:
    """The model of a device by its own words for it; None for one that is not known.

    The hwsku counts where the platform is missing; it names the box, then the split of its ports.
    """
    if platform:
        return next((model for model in MODELS if platform in model.platforms), None)
    return next((model for model in MODELS if hwsku.startswith(model.hwskus)), None)
