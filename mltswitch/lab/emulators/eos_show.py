"""What an emulated Arista switch prints about itself.

The running configuration follows the order and the indentation of the configurations that aristanetworks/avd
tests against switches; what is as delivered is left out. The JSON of the config sessions is the part of which
napalm's driver reads the states, those of version and host name the part of which it reads its facts. Ours:
several code points of one traffic class stand on one line, and the differences to what is saved are a unified
diff.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Final

from mltswitch.lab.emulators.device import Neighbours, mac_address, serial_number
from mltswitch.lab.emulators.eos_state import (
    LOW_ORDER,
    EosConfiguration,
    Port,
    Qos,
    Queue,
    Threshold,
    Trust,
)

RELEASE: Final = "4.32.0F-emulator"
_LEVEL: Final = "   "


def running_config(hostname: str, release: str, queue_word: str, configuration: EosConfiguration) -> str:
    """`show running-config`."""
    text = f"! Command: show running-config\n! device: {hostname} (emulator, EOS-{release})\n!\n"
    text += f"hostname {hostname}\n!\n"
    flags = sorted(configuration.flags - {"ip routing"})
    if lines := [*flags, *_map_lines(configuration)]:
        text += "".join(f"{line}\n" for line in lines) + "!\n"
    for name, profile in configuration.profiles.items():
        text += _block(f"qos profile {name}", _qos_lines(profile), profile.queues, queue_word)
    for name, port in configuration.ports.items():
        text += _block(f"interface {name}", _port_lines(port), port.qos.queues, queue_word)
    text += "".join(f"{line}\n" for line in configuration.policies.lines())
    text += "ip routing\n!\n" if "ip routing" in configuration.flags else "no ip routing\n!\n"
    if configuration.routes:
        text += "".join(f"{route}\n" for route in configuration.routes) + "!\n"
    return text + "end\n"


def unsaved(saved: str, running: str) -> str:
    """`show running-config diffs`: nothing where all is saved."""
    lines = unified_diff(
        saved.splitlines(),
        running.splitlines(),
        "flash:/startup-config",
        "system:/running-config",
        lineterm="",
    )
    return "".join(f"{line}\n" for line in lines)


def version(model: str, release: str, name: str) -> dict[str, object]:
    """`show version | json`."""
    return {
        "mfgName": "Arista",
        "modelName": model,
        "serialNumber": serial_number(name),
        "systemMacAddress": mac_address(name),
        "version": release,
    }


def hostname(name: str) -> dict[str, object]:
    """`show hostname | json`; the emulator has no domain."""
    return {"hostname": name, "fqdn": name}


def neighbours(found: Neighbours) -> dict[str, object]:
    """`show lldp neighbors | json`."""
    entries = [
        {"port": port, "neighborDevice": system, "neighborPort": name, "ttl": 120}
        for port, (system, name) in found.items()
    ]
    return {"tablesInserts": len(entries), "lldpNeighbors": entries}


def sessions(states: Mapping[str, str]) -> dict[str, object]:
    """`show configuration sessions detail | json`."""
    return {
        "maxSavedSessions": 1,
        "maxOpenSessions": 5,
        "sessions": {name: {"state": state, "instances": {}} for name, state in states.items()},
    }


def _block(head: str, lines: Iterator[str], queues: Mapping[int, Queue], queue_word: str) -> str:
    text = head + "\n" + "".join(f"{_LEVEL}{line}\n" for line in lines)
    for number, queue in sorted(queues.items()):
        if own := list(_queue_lines(queue)):
            text += f"{_LEVEL}!\n{_LEVEL}{queue_word} {number}\n"
            text += "".join(f"{_LEVEL}{_LEVEL}{line}\n" for line in own)
    return text + "!\n"


def _map_lines(configuration: EosConfiguration) -> Iterator[str]:
    yield from _grouped("cos", configuration.cos_classes, LOW_ORDER, (0,) * len(LOW_ORDER), "traffic-class")
    delivered = tuple(LOW_ORDER[dscp >> 3] for dscp in range(len(configuration.dscp_classes)))
    yield from _grouped(
        "dscp", configuration.dscp_classes, delivered, configuration.dscp_precedence, "traffic-class"
    )
    queues = configuration.class_queues
    yield from _grouped("traffic-class", queues, range(len(queues)), (0,) * len(queues), "tx-queue")


def _grouped(
    kind: str, values: Sequence[int], delivered: Sequence[int], precedence: Sequence[int], target: str
) -> Iterator[str]:
    groups: dict[tuple[int, int], list[str]] = {}
    for index, (value, usual, drop) in enumerate(zip(values, delivered, precedence, strict=True)):
        if (value, drop) != (usual, 0):
            groups.setdefault((value, drop), []).append(str(index))
    for (value, drop), numbers in sorted(groups.items()):
        suffix = f" drop-precedence {drop}" if drop else ""
        yield f"qos map {kind} {' '.join(numbers)} to {target} {value}{suffix}"


def _port_lines(port: Port) -> Iterator[str]:
    if port.description:
        yield f"description {port.description}"
    if port.shutdown:
        yield "shutdown"
    if port.mtu_bytes is not None:
        yield f"mtu {port.mtu_bytes}"
    if not port.switchport:
        yield "no switchport"
    if port.address is not None:
        yield f"ip address {port.address}"
    if port.channel_group:
        yield f"channel-group {port.channel_group} mode active"
    for direction in sorted(port.flow_control):
        yield f"flowcontrol {direction} on"
    if port.profile:
        yield f"service-profile {port.profile}"
    yield from _qos_lines(port.qos)


def _qos_lines(qos: Qos) -> Iterator[str]:
    if qos.policy:
        yield f"service-policy type qos input {qos.policy}"
    if qos.pfc:
        yield "priority-flow-control on"
    for priority in sorted(qos.lossless):
        yield f"priority-flow-control priority {priority} no-drop"
    if qos.trust is Trust.NONE:
        yield "no qos trust"
    elif qos.trust is not Trust.DEFAULT:
        yield f"qos trust {qos.trust}"
    if qos.cos is not None:
        yield f"qos cos {qos.cos}"
    if qos.dscp is not None:
        yield f"qos dscp {qos.dscp}"
    if qos.shape:
        yield f"shape rate {qos.shape}"


def _queue_lines(queue: Queue) -> Iterator[str]:
    if not queue.strict:
        yield "no priority"
    if queue.bandwidth:
        yield f"bandwidth {queue.bandwidth}"
    if queue.shape:
        yield f"shape rate {queue.shape}"
    if queue.ecn_count:
        yield "random-detect ecn count"
    if queue.ecn is not None:
        yield f"random-detect ecn {_threshold(queue.ecn, 'max-mark-probability')}"
    if queue.drop is not None:
        yield f"random-detect drop {_threshold(queue.drop, 'drop-probability')}"


def _threshold(threshold: Threshold, probability: str) -> str:
    text = f"minimum-threshold {threshold.minimum} {threshold.unit} "
    text += f"maximum-threshold {threshold.maximum} {threshold.unit}"
    if threshold.probability is not None:
        text += f" {probability} {threshold.probability}"
    if threshold.weight is not None:
        text += f" weight {threshold.weight}"
    return text
