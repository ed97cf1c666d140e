"""A lab for measuring one queue: three hosts on one leaf, thresholds chosen so that every class loses."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from mltswitch.capabilities import BytesLimit
from mltswitch.documents import dump_yaml
from mltswitch.errors import MachineError
from mltswitch.lab import Lab, lab_bottleneck
from mltswitch.measure import Bottleneck
from mltswitch.plan import ClassKind, Plan, PortProfile, QueueSettings, TrafficClass, load_plan

THRESHOLDS_PACKETS: Final = ((8, 16), (16, 32), (32, 64))
"""(S, L) of the gradient classes."""
LOAD_SHARES: Final = (0.2, 0.3, 0.5)
"""Of the gradient load, class by class."""


def _fabric(rate: str) -> dict[str, Any]:
    return {
        "schema": "mltswitch/fabric/v1",
        "name": "lab-queue",
        "topology": {
            "leaf_spine": {
                "spines": {"count": 1, "platform": "linux"},
                "leaves": {"count": 1, "platform": "linux"},
                "hosts_per_leaf": 3,
            }
        },
        "addressing": {
            "hosts": "10.10.0.0/16",
            "links": "10.20.0.0/16",
            "alias": {"spine1": "10.101.0.0/16"},
        },
        "ports": {"rate": rate, "buffer": "512kB", "shaped": True},
        "traffic": {"load": 1.0},
        "classes": {
            "network_control": {"dscp": [48, 56], "load": 0.001, "limit_packets": 16},
            "control": {"dscp": [40], "load": 0.005, "limit_packets": 32},
            "gradients": {"dscp": [34, 36, 26]},
            "background": {"dscp": [0], "load": 0.02, "guaranteed_share": 0.05, "limit_packets": 32},
        },
        "spraying": {"mode": "alias"},
    }


INVENTORY: Final = {
    "all": {
        "hosts": {"spine1": {"ansible_host": "127.77.8.1"}, "leaf1": {"ansible_host": "127.77.8.11"}},
        "vars": {
            "mltswitch_platform": "linux",
            "ansible_user": "root",
            "ansible_port": 2222,
            "ansible_ssh_private_key_file": ".lab/keys/id_ed25519",
            "mltswitch_known_hosts_file": ".lab/known_hosts",
        },
    }
}


@contextmanager
def running_port(rate: str) -> Iterator[tuple[Plan, Bottleneck]]:
    """Bring the lab up, push the plan, and take all of it down at the end.

    All senders stand on the receiver's leaf: a burst crosses no other queue on its way to the port's, and
    comes nearly at once.
    """
    folder = tempfile.mkdtemp(prefix="mltswitch-lab-queue-")
    inventory = Path(folder)
    try:
        (inventory / "fabric.yaml").write_text(yaml.safe_dump(_fabric(rate), sort_keys=False))
        (inventory / "hosts.yaml").write_text(yaml.safe_dump(INVENTORY))
        plan_file = inventory / "plan.yaml"
        _call("lab", "up", "-i", folder)
        _call("plan", "--profile", "resnet50", "--fabric", f"{folder}/fabric.yaml", "-o", str(plan_file))
        plan = with_own_thresholds(load_plan(plan_file))
        plan_file.write_text(dump_yaml(plan))
        _call("push", str(plan_file), "-i", folder)
        bottleneck = lab_bottleneck(Lab(inventory / ".lab"), plan, None)
        yield plan, replace(bottleneck, senders=(bottleneck.near_sender,))
    finally:
        _call("lab", "down", "-i", folder)
        shutil.rmtree(folder)  # only now: the lab's record of what runs lies in it


def with_own_thresholds(plan: Plan) -> Plan:
    """The plan with this benchmark's class loads, S and L instead of the optimiser's."""
    gradients = [entry.name for entry in plan.gradient_classes]
    shares = dict(zip(gradients, LOAD_SHARES, strict=True))
    thresholds = dict(zip(gradients, THRESHOLDS_PACKETS, strict=True))
    planned = plan.fabric.traffic.load
    return plan.model_copy(
        update={
            "classes": tuple(_with_load(entry, shares, planned) for entry in plan.classes),
            "port_profiles": tuple(_with_thresholds(entry, thresholds) for entry in plan.port_profiles),
        }
    )


def _with_load(entry: TrafficClass, shares: Mapping[str, float], planned: float) -> TrafficClass:
    if entry.kind is not ClassKind.GRADIENT:
        return entry
    return entry.model_copy(update={"load": shares[entry.name] * planned})


def _with_thresholds(profile: PortProfile, thresholds: Mapping[str, tuple[int, int]]) -> PortProfile:
    queues = tuple(_queue(entry, thresholds, profile.packet_bytes) for entry in profile.queues)
    return profile.model_copy(update={"queues": queues})


def _queue(entry: QueueSettings, thresholds: Mapping[str, tuple[int, int]], size: int) -> QueueSettings:
    if entry.traffic_class not in thresholds:
        return entry
    threshold, limit = thresholds[entry.traffic_class]
    return entry.model_copy(
        update={
            "ecn_threshold_bytes": threshold * size,
            "limit": BytesLimit(kind="bytes", size_bytes=limit * size),
            "prediction": None,
        }
    )


def _call(*arguments: str) -> None:
    """Run our command as a user would; raises MachineError with its last line."""
    command = [sys.executable, "-m", "mltswitch", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise MachineError(last[0], where=f"mltswitch {' '.join(arguments[:2])}")
