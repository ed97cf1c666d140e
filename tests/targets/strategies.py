"""Random valid plans for one hardware model, built as documents: no profile, no optimiser."""

import os
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from mltswitch.capabilities import AlphaLimit, BytesLimit, Capabilities, Limit, Unlimited
from mltswitch.plan import (
    ClassKind,
    Fabric,
    Paths,
    Plan,
    PortProfile,
    PortRole,
    Provenance,
    QueueSettings,
    Topology,
    TrafficClass,
)
from mltswitch.planning.classes import traffic_classes
from mltswitch.profile import resolve_profile
from mltswitch.units import frame_bytes

LAW_EXAMPLES = int(os.environ.get("MLTSWITCH_LAW_EXAMPLES", "10"))
"""Random plans for each law of each target; 1,000 and more by hand, or at night."""
MAXIMUM_GRADIENT_CLASSES = 8
OTHER_CLASSES = 3
LARGEST_BUFFER_BYTES = 16_000_000
CONTROL_CODE_POINTS = (48, 56)
MODEL = resolve_profile("resnet50")


@st.composite
def plans(
    draw: DrawFn,
    capabilities: Capabilities,
    gradients: int | None = None,
    others: list[dict[str, object]] | None = None,
    has_lossless: bool = True,
) -> Plan:
    """A leaf-spine of 1-3 spines and 1-4 leaves of this hardware, with random classes and thresholds."""
    if others is None:
        others = [entry for entry in draw(_others(capabilities)) if has_lossless or "lossless" not in entry]
    lossless = sum("lossless" in entry for entry in others)
    room = len(capabilities.queues_beside(lossless)) - OTHER_CLASSES - (len(others) - lossless)
    if gradients is None:
        gradients = draw(st.integers(1, min(MAXIMUM_GRADIENT_CLASSES, room)))
    fabric = draw(fabrics(capabilities, gradients, others))
    classes = _classes(fabric)
    roles = sorted({port.role for switch in Topology(fabric).switches for port in switch.ports})
    return Plan(
        schema="mltswitch/plan/v2",
        provenance=Provenance(
            tool_version="0",
            queueing_model="paper",
            profile_name="random",
            profile_sha256="0" * 64,
            fabric_sha256="0" * 64,
            sensitivity="random",
        ),
        unimportant_share=draw(st.floats(0, 1)),
        classes=classes,
        port_profiles=tuple(draw(_port_profiles(capabilities, fabric, classes, role)) for role in roles),
        end_to_end=(),
        hops=3,
        paths=Paths(
            mode=fabric.spraying.mode,
            rule="address = alias prefix of the spine + host index",
            burst_packets=1,
        ),
        fabric=fabric,
    )


def switch_names(plan: Plan) -> SearchStrategy[str]:
    """Any switch of a plan."""
    return st.sampled_from([switch.name for switch in plan.topology.switches])


@st.composite
def fabrics(
    draw: DrawFn, capabilities: Capabilities, gradients: int, others: Sequence[dict[str, object]] = ()
) -> Fabric:
    """Fabric with `gradients` gradient DSCPs, some of its ports untrusted."""
    spines, leaves = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    numbering = capabilities.port_numbering
    group = {
        "platform": capabilities.platform,
        "hardware": capabilities.hardware,
        "port_names": numbering,
    }
    addressing: dict[str, object] = {
        "hosts": "10.0.0.0/16",
        "links": "10.1.0.0/16",
        "alias": {f"spine{n + 1}": f"10.{100 + n}.0.0/16" for n in range(spines)},
        "leaf_stride": draw(st.sampled_from([4, 64, 256])),
    }
    mode = draw(st.sampled_from(capabilities.spray_modes))
    if mode == "srv6":
        addressing["segments"] = draw(st.sampled_from(["fd00:6d6c::/32", "2001:db8::/32"]))
    document = {
        "schema": "mltswitch/fabric/v1",
        "name": "random",
        "topology": {
            "leaf_spine": {
                "spines": group | {"count": spines},
                "leaves": group | {"count": leaves},
                "hosts_per_leaf": draw(st.integers(0, 3)),
            }
        },
        "addressing": addressing,
        "ports": {
            "rate": draw(st.integers(10_000, 100_000)) * 1000,
            "buffer": LARGEST_BUFFER_BYTES,
            "mtu_bytes": draw(st.sampled_from([1500, 4096, 9000])),
            "shaped": capabilities.can_shape and draw(st.booleans()),
        },
        "traffic": {"load": draw(st.floats(0.1, 1.5))},
        "classes": draw(_code_points(gradients, others)),
        "spraying": {"mode": mode},
    }
    fabric = Fabric.model_validate(document)
    ports = [f"{switch.name}:{port.name}" for switch in Topology(fabric).switches for port in switch.ports]
    trusted = draw(st.just("all") | st.lists(st.sampled_from(ports), unique=True).map(tuple))
    return fabric.model_copy(update={"trusted_ports": trusted})


@st.composite
def _others(draw: DrawFn, capabilities: Capabilities) -> list[dict[str, object]]:
    """Up to two classes of the user's own, as far as the hardware has queues for them; without DSCPs."""
    services: list[dict[str, object]] = [
        {},
        {"place": "above-gradients"},
        {"place": "below-gradients"},
        {"guaranteed_share": draw(st.integers(1, 300)) / 1000},
        {"guaranteed_share": draw(st.integers(1, 300)) / 1000},
    ]
    if capabilities.lossless_queues:
        services.append({"lossless": True})
    chosen = draw(st.permutations(services))[: min(2, len(capabilities.queues) - OTHER_CLASSES - 1)]
    return [{"name": f"other-{n}", "load": 0, **service} for n, service in enumerate(chosen) if service]


@st.composite
def _code_points(draw: DrawFn, gradients: int, others: Sequence[dict[str, object]]) -> dict[str, object]:
    free = [dscp for dscp in range(64) if dscp not in CONTROL_CODE_POINTS]
    shuffled = draw(st.permutations(free))
    control, background = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    cap = draw(st.integers(6, 1000))
    share = draw(st.integers(int(any("guaranteed_share" in entry for entry in others)), 300))
    first = control + background
    return {
        "control": {"dscp": shuffled[:control], "rate_cap_share": cap / 1000},
        "background": {
            "dscp": shuffled[control : control + background],
            "guaranteed_share": share / 1000,
        },
        "gradients": {"dscp": shuffled[-gradients:]},
        "others": [{**entry, "dscp": [shuffled[first + n]]} for n, entry in enumerate(others)],
    }


def _classes(fabric: Fabric) -> tuple[TrafficClass, ...]:
    """As a plan has them, for any model."""
    return traffic_classes(MODEL, fabric, len(fabric.classes.gradients.dscp))


@st.composite
def _port_profiles(
    draw: DrawFn,
    capabilities: Capabilities,
    fabric: Fabric,
    classes: tuple[TrafficClass, ...],
    role: PortRole,
) -> PortProfile:
    packet_bytes = frame_bytes(fabric.ports.mtu_bytes)
    share_bytes = LARGEST_BUFFER_BYTES // len(classes)
    gradients = sum(entry.kind is ClassKind.GRADIENT for entry in classes)
    least = max(packet_bytes, capabilities.threshold.minimum_bytes)
    possible = st.integers(least, min(share_bytes, _largest_threshold_bytes(capabilities)))
    rising = iter(sorted(draw(st.lists(possible, min_size=gradients, max_size=gradients, unique=True))))
    queues: list[QueueSettings] = []
    for entry in classes:
        threshold = next(rising) if entry.kind is ClassKind.GRADIENT else None
        limit: Limit = BytesLimit(size_bytes=draw(st.integers(threshold or packet_bytes, share_bytes)))
        if entry.kind is ClassKind.LOSSLESS:
            limit = Unlimited()
        queues.append(QueueSettings(traffic_class=entry.name, ecn_threshold_bytes=threshold, limit=limit))
    return PortProfile(
        platform=capabilities.platform,
        hardware=capabilities.hardware,
        role=role,
        rate_bps=fabric.ports.rate_bps,
        shaped=fabric.ports.shaped,
        packet_bytes=packet_bytes,
        buffer_bytes=LARGEST_BUFFER_BYTES,
        load=fabric.traffic.load,
        queues=tuple(queues),
    )


def _largest_threshold_bytes(capabilities: Capabilities) -> int:
    """Rounded up by a step, it still lies below a limit that the hardware can set."""
    can, limit = capabilities.threshold, capabilities.limit
    largest = min(LARGEST_BUFFER_BYTES // 2, can.maximum_bytes)
    if limit.pool_bytes is None:
        return largest
    return min(
        largest, AlphaLimit(max(limit.alpha_exponents)).resting_bytes(limit.pool_bytes) - can.step_bytes
    )
