"""Fleets of switches that are all different: what `benchmarks.render_fleet` renders."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from mltswitch.capabilities import BytesLimit, Capabilities
from mltswitch.inventory import Device
from mltswitch.plan import (
    ClassKind,
    Fabric,
    LayerRange,
    Paths,
    Plan,
    PortProfile,
    PortRole,
    Provenance,
    QueueSettings,
    Topology,
    TrafficClass,
)
from mltswitch.planning import predict_port
from mltswitch.targets import targets
from mltswitch.units import frame_bytes

PORTS: Final = 32
QUEUES: Final = 8
OTHER_CLASSES: Final = 3
SPINES: Final = 8
"""Of a leaf's fabric, at most; its other ports have hosts."""
SPINE_PLATFORM: Final = "linux"
"""The one whose boxes have any number of ports."""
BUFFER_BYTES: Final = 2_000_000
PACKET_BYTES: Final = frame_bytes(1500)
TRUSTED_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Member:
    """One device of a fleet, and the plan that it alone has."""

    plan: Plan
    device: Device


def fleet() -> Iterator[Member]:
    """Different devices without end, the platforms in turn, each with its own plan; always the same."""
    known = [target.hardware(None) for target in targets().values()]
    number = 0
    while True:
        yield _member(number, known[number % len(known)], is_spine=number // len(known) % 4 == 3)
        number += 1


def one_plan(
    leaves: int, platforms: Collection[str] = (), *, ports: int = PORTS, spines: int = SPINES
) -> tuple[Plan, tuple[Device, ...]]:
    """One plan for a fabric of so many leaves, the platforms in turn (none named: all); (plan, leaves)."""
    random = Random(leaves)  # noqa: S311  (no secret)
    known = [
        target.hardware(None) for name, target in targets().items() if not platforms or name in platforms
    ]
    switches = [(f"leaf{number + 1}", known[number % len(known)]) for number in range(leaves)]
    fabric = _wide_fabric(switches, ports, spines)
    classes = _classes(fabric)
    roles = (PortRole.LEAF_DOWN, PortRole.LEAF_UP)
    profiles = [_profile(random, entry, fabric, classes, role) for entry in known for role in roles]
    spine = targets()[SPINE_PLATFORM].hardware(None)
    profiles.append(_profile(random, spine, fabric, classes, PortRole.SPINE_DOWN))
    plan = _plan(fabric, classes, tuple(profiles), "completion", leaves)
    return plan, tuple(_device(name, entry, name) for name, entry in switches)


def _member(number: int, capabilities: Capabilities, *, is_spine: bool) -> Member:
    random = Random(number)  # noqa: S311  (no secret)
    fabric = _fabric(random, number, capabilities, is_spine=is_spine)
    classes = _classes(fabric)
    roles = (PortRole.SPINE_DOWN,) if is_spine else (PortRole.LEAF_DOWN, PortRole.LEAF_UP)
    profiles = tuple(_profile(random, capabilities, fabric, classes, role) for role in roles)
    plan = _plan(fabric, classes, profiles, "paper", number)
    return Member(plan, _device(f"device{number}", capabilities, "spine1" if is_spine else "leaf1"))


def _device(name: str, capabilities: Capabilities, switch: str) -> Device:
    return Device(
        name=name,
        platform=capabilities.platform,
        switch=switch,
        address="192.0.2.1",
        port=22,
        user="admin",
        key_file=None,
        known_hosts_file=Path("known_hosts"),
        password=None,
        groups=("all",),
    )


def _plan(
    fabric: Fabric,
    classes: tuple[TrafficClass, ...],
    profiles: tuple[PortProfile, ...],
    model: str,
    number: int,
) -> Plan:
    fields: dict[str, Any] = {
        "schema": "mltswitch/plan/v2",
        "provenance": Provenance(
            tool_version="0",
            queueing_model=model,
            profile_name="fleet",
            profile_sha256="0" * 64,
            fabric_sha256=f"{number:064x}",
            sensitivity="fleet",
        ),
        "unimportant_share": 0.5,
        "classes": classes,
        "port_profiles": profiles,
        "end_to_end": (),
        "hops": 3,
        "paths": Paths(
            mode="alias", rule="address = alias prefix of the spine + host index", burst_packets=8
        ),
        "fabric": fabric,
    }
    return _predicted(Plan(**fields))


def _predicted(plan: Plan) -> Plan:
    """With what the model says of its thresholds, as every plan on the disk has it."""
    profiles: list[PortProfile] = []
    for profile in plan.port_profiles:
        found = predict_port(plan, profile)
        queues = tuple(
            queue.model_copy(update={"prediction": found[queue.traffic_class]}) for queue in profile.queues
        )
        profiles.append(profile.model_copy(update={"queues": queues}))
    return plan.model_copy(update={"port_profiles": tuple(profiles)})


def _fabric(random: Random, number: int, capabilities: Capabilities, *, is_spine: bool) -> Fabric:
    """The fabric of one device, with addresses, code points, load and trusted ports of its own."""
    ports = _port_count(capabilities)
    spines = 1 if is_spine else min(SPINES, ports // 2)
    numbering = capabilities.port_numbering
    group = {
        "platform": capabilities.platform,
        "hardware": capabilities.hardware,
        "port_names": numbering,
    }
    net, block = 1 + number % 250, number // 250
    fabric = Fabric.model_validate(
        {
            "schema": "mltswitch/fabric/v1",
            "name": f"fleet{number}",
            "topology": {
                "leaf_spine": {
                    "spines": group | {"count": spines},
                    "leaves": group | {"count": ports if is_spine else 1},
                    "hosts_per_leaf": 0 if is_spine else ports - spines,
                }
            },
            "addressing": {
                "hosts": f"10.{net}.0.0/16",
                "links": f"172.{16 + block % 16}.{net}.0/24",
                "alias": {f"spine{n + 1}": f"{20 + n}.{net}.{block * 16}.0/20" for n in range(spines)},
            },
            "ports": {"rate": "25Gbps", "buffer": BUFFER_BYTES},
            "traffic": {"load": 0.9 + number % 100 / 500, "burst_packets": 8},
            "classes": _code_points(random, _gradient_count([capabilities])),
        }
    )
    names = [f"{switch.name}:{port.name}" for switch in Topology(fabric).switches for port in switch.ports]
    trusted = tuple(name for name in names if random.random() < TRUSTED_SHARE)
    return fabric.model_copy(update={"trusted_ports": trusted})


def _wide_fabric(leaves: Sequence[tuple[str, Capabilities]], ports: int, spines: int) -> Fabric:
    switches = [
        {"name": f"spine{n + 1}", "role": "spine", "platform": SPINE_PLATFORM, "hardware": None}
        for n in range(spines)
    ]
    hosts: list[dict[str, str]] = []
    links: list[dict[str, str]] = []
    for number, (leaf, entry) in enumerate(leaves):
        switches.append(
            {"name": leaf, "role": "leaf", "platform": entry.platform, "hardware": entry.hardware}
        )
        for place in range(_port_count(entry, ports)):
            numbering = entry.port_numbering
            name = numbering.name(place)
            if place < spines:
                links.append({"a": f"{leaf}:{name}", "b": f"spine{place + 1}:eth{number}"})
            else:
                hosts.append({"name": f"host{len(hosts) + 1}"})
                links.append({"a": f"{leaf}:{name}", "b": f"host{len(hosts)}:eth0"})
    return Fabric.model_validate(
        {
            "schema": "mltswitch/fabric/v1",
            "name": "one-plan",
            "topology": {"switches": switches, "hosts": hosts, "links": links},
            "addressing": {
                "hosts": "10.0.0.0/8",
                "links": "172.16.0.0/12",
                "alias": {f"spine{n + 1}": f"{20 + n}.0.0.0/12" for n in range(spines)},
                "leaf_stride": 32,
            },
            "ports": {"rate": "25Gbps", "buffer": BUFFER_BYTES},
            "traffic": {"load": 0.9, "burst_packets": 8},
            "classes": _code_points(Random(0), _gradient_count([entry for _, entry in leaves])),  # noqa: S311  (no secret)
        }
    )


def _port_count(capabilities: Capabilities, ports: int = PORTS) -> int:
    return min(ports, capabilities.ports[0].count if capabilities.ports else ports)


def _gradient_count(devices: Sequence[Capabilities]) -> int:
    return min(QUEUES, *(len(capabilities.queues) for capabilities in devices)) - OTHER_CLASSES


def _code_points(random: Random, gradients: int) -> dict[str, Any]:
    free = list(range(48))
    random.shuffle(free)
    return {
        "control": {"dscp": free[:2]},
        "background": {"dscp": free[2:4]},
        "gradients": {"dscp": free[4 : 4 + gradients]},
    }


def _classes(fabric: Fabric) -> tuple[TrafficClass, ...]:
    given, load = fabric.classes, fabric.traffic.load
    gradients = [
        TrafficClass(
            name=f"gradient-{n}",
            kind=ClassKind.GRADIENT,
            dscp=(dscp,),
            layers=LayerRange(first=n, last=n, first_name=f"l{n}", last_name=f"l{n}", size_bytes=1),
            load=load / len(given.gradients.dscp),
        )
        for n, dscp in enumerate(given.gradients.dscp)
    ]
    first, last = ClassKind.NETWORK_CONTROL, ClassKind.BACKGROUND
    return (
        TrafficClass(name=first.value, kind=first, dscp=given.network_control.dscp, load=0.001),
        TrafficClass(name="control", kind=ClassKind.CONTROL, dscp=given.control.dscp, load=0.005),
        *gradients,
        TrafficClass(name=last.value, kind=last, dscp=given.background.dscp, load=0.02),
    )


def _profile(
    random: Random,
    capabilities: Capabilities,
    fabric: Fabric,
    classes: tuple[TrafficClass, ...],
    role: PortRole,
) -> PortProfile:
    """Thresholds that rise from class to class, each somewhere between two packets."""
    queues: list[QueueSettings] = []
    for place, entry in enumerate(classes):
        threshold = PACKET_BYTES * 8 * place + random.randrange(PACKET_BYTES * 4)
        is_gradient = entry.kind is ClassKind.GRADIENT
        limit = (threshold if is_gradient else 0) + random.randrange(PACKET_BYTES * 16, PACKET_BYTES * 40)
        queues.append(
            QueueSettings(
                traffic_class=entry.name,
                ecn_threshold_bytes=threshold if is_gradient else None,
                limit=BytesLimit(size_bytes=limit),
            )
        )
    return PortProfile(
        platform=capabilities.platform,
        hardware=capabilities.hardware,
        role=role,
        rate_bps=fabric.ports.rate_bps,
        shaped=False,
        packet_bytes=PACKET_BYTES,
        buffer_bytes=BUFFER_BYTES,
        pool_bytes=capabilities.limit.pool_bytes if capabilities.limit.kind == "alpha" else None,
        load=fabric.traffic.load,
        queues=tuple(queues),
    )
