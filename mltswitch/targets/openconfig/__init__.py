"""The target for switches that serve OpenConfig's models over gNMI, whichever OS they run.

Managed on a device: the objects of `qos` named mltswitch-…, what the plan's ports are bound to, and static
routes within the plan's prefixes. A change is one SetRequest, which takes effect as a whole or not at all
(gNMI specification, 3.4.3), so no change is ever half in effect.

Sources: the models are github.com/openconfig/public, whose descriptions say what a leaf does; FP is
github.com/openconfig/featureprofiles, whose tests configure real switches, and say which ones deviate.
"""

import re
from typing import Final

from mltswitch.capabilities import Capabilities, LimitCapability, PortNumbering, unverified
from mltswitch.capabilities.hardware import chip, threshold_capability
from mltswitch.targets.base import Guard, SessionKind
from mltswitch.targets.common import NO_PORT
from mltswitch.targets.openconfig.model import (
    CHASSIS,
    FILE,
    QOS,
    SYSTEM,
    adapt,
    change_between,
    identify,
    queries_for,
    read_answers,
    read_files,
    restoring_change,
    write_files,
)
from mltswitch.targets.target import Target

_UNVERIFIED: Final = unverified(
    "openconfig",
    {
        "red-per-packet": "wred/uniform, enable-ecn and drop: marks ECN-capable packets and drops the others "
        "above the threshold (the model says so; FP has enable-ecn alone)",
        "equal-thresholds": "wred/uniform: min-threshold may equal max-threshold (FP has it)",
        "queue-length": "wred/uniform: weight 0 is the queue's own length (the model's formula; FP has it)",
        "strict-order": "one STRICT scheduler a sequence: lower sequences are served first (the model says "
        "so; FP has this form, and one with all queues in sequence 0)",
        "queue-names": "queues: a name of ours with a queue-id is the hardware queue of that number",
        "cpu-queue": "which queue packets take that the switch itself sends, where it is not queue 7",
        "both-families": "a port takes a classifier for IPv4 and one for IPv6 (FP has it); packets that are "
        "neither take the queue that the device has for them",
        "shown-as-set": "what is set reads back as it was set, with no other leaf of `config` beside it",
        "threshold-cells": "wred/uniform: a threshold in whole cells is what the chip runs",
        "marking-point": "marks at dequeue: shown for this chip under SONiC",
        "persistence": "Set: survives a reboot (EOS: management api gnmi, operation set persistence)",
        "static-name": "static routes, where a device has none yet: their protocol is called STATIC",
    },
)
TRIDENT3: Final = Capabilities(
    platform="openconfig",
    hardware="trident3",
    description="Trident 3 under an OS that serves openconfig-qos 0.8.0 or later, such as Arista 7050CX3-32S",
    queues=tuple(reversed(range(7))),
    reserved_queues=((7, "EOS keeps it for control traffic (Arista TOI, QoS manual)"),),
    threshold=threshold_capability(chip("trident3")),
    limit=LimitCapability(
        kind="none",
        source="openconfig-qos, buffer-allocation-profiles: what they may be on this chip has no source, so "
        "the device's own limits stay as they are",
    ),
    averaging="none, the queue's own length (wred/uniform, weight 0)",
    marks_at="dequeue",
    # What ports are called is the OS's business: a fabric says it (port_names) where this is not EOS.
    port_numbering=PortNumbering(pattern="Ethernet{n}/1"),
    remaps_host_control=True,
    unverified=_UNVERIFIED,
)

_IXR_D3: Final = re.compile("7220.IXR-D3")
TARGET = Target(
    platform="openconfig",
    session=SessionKind.GNMI,
    models={TRIDENT3.hardware: TRIDENT3},
    refused={
        "7220-ixr-d3": "no public source names its chip, so nothing is known of its cells, thresholds and "
        "averaging, on which a plan depends",
    },
    files=(FILE,),
    port_name=re.compile(r"[A-Za-z][A-Za-z0-9/._:-]{0,62}"),
    port_examples="Ethernet1/1 or ethernet-1/1",
    route_port_name=NO_PORT,
    adapt=adapt,
    write=write_files,
    read_files=read_files,
    queries=queries_for,
    read=read_answers,
    diff=change_between,
    restore=restoring_change,
    guard=Guard(compares=True, whole=QOS),
    identity_queries=(CHASSIS, SYSTEM),
    identify=identify,
    hardware_of=lambda model: ("7220-ixr-d3",) if _IXR_D3.search(model) else (),
    no_counters="openconfig-qos counts by queue, but nobody has shown which devices count what",
    settled_by_acceptance=("red-per-packet", "queue-length", "strict-order"),
)
