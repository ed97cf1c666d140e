"""Ansible's template module on devices of a fleet: the peer of `benchmarks.render_fleet`."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import yaml

from benchmarks.fleet import Member, fleet
from mltswitch.app.rendering import render_device
from mltswitch.capabilities import BitRate, PortShare
from mltswitch.targets import target_for
from mltswitch.targets.remap import HOST_POLICY, UNTRUSTED_POLICY, policy_of, rewriting_map
from mltswitch.targets.state import QueueState

PLATFORM: Final = "eos"
TEMPLATE: Final = Path(__file__).with_name("ansible_eos.txt.j2")
LONGEST_SECONDS: Final = 1800


def ansible_playbook() -> str | None:
    """The program, beside this Python or in the path."""
    folders = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    return shutil.which("ansible-playbook", path=os.pathsep.join(folders))


def measure_ansible(program: str, devices: int) -> dict[str, float]:
    """Its figures for so many devices of the fleet, and how much longer it takes than we do.

    Raises:
        RuntimeError: it failed, or what it wrote differs from what we write.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts, our_seconds = _prepare(folder, devices)
        environment = os.environ | {"ANSIBLE_HOME": str(folder / "home"), "LC_ALL": "C.UTF-8"}
        started = perf_counter()
        outcome = subprocess.run(
            [program, "-i", "hosts.yaml", "-f", str(os.cpu_count() or 1), "playbook.yaml"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_SECONDS,
        )
        seconds = perf_counter() - started
        if outcome.returncode:
            raise RuntimeError(f"ansible-playbook failed: {(outcome.stdout + outcome.stderr)[-2000:]}")
        for device, text in texts.items():
            if (folder / "out" / device).read_text(encoding="utf-8") != text:
                raise RuntimeError(f"{device}: Ansible wrote another text than mltswitch")
    return {
        "ansible_devices": float(devices),
        "ansible_seconds": seconds,
        "ratio_to_ansible_template": seconds / our_seconds,
    }


def _prepare(folder: Path, devices: int) -> tuple[dict[str, str], float]:
    """A playbook, and an inventory with each device's values; (device → our text, our seconds)."""
    for name in ("host_vars", "out"):
        (folder / name).mkdir()
    members = list(islice((entry for entry in fleet() if entry.device.platform == PLATFORM), devices))
    for member in members:
        values = _template_values(member) | {"source": str(TEMPLATE)}
        file = folder / "host_vars" / f"{member.device.name}.json"
        file.write_text(json.dumps(values), encoding="utf-8")
    texts: dict[str, str] = {}
    our_seconds = 0.0
    for member in members:
        started = perf_counter()
        _, files = render_device(member.plan, member.device)
        our_seconds += perf_counter() - started
        [texts[member.device.name]] = files.values()
    hosts = {"all": {"hosts": dict.fromkeys(texts), "vars": {"ansible_connection": "local"}}}
    (folder / "hosts.yaml").write_text(yaml.safe_dump(hosts), encoding="utf-8")
    (folder / "playbook.yaml").write_text(yaml.safe_dump([_play(folder)]), encoding="utf-8")
    return texts, our_seconds


def _template_values(member: Member) -> dict[str, Any]:
    """What the template of EOS needs of a device's state."""
    fitted = target_for(PLATFORM).fit_to_hardware(member.plan, member.device.switch)
    state, own = fitted.state, rewriting_map(fitted.state, "EOS")
    background = state.ports[0].queues[-1].queue
    used = {policy_of(port) for port in state.ports}
    return {
        "queue_word": "tx-queue" if fitted.capabilities.hardware == "trident2" else "uc-tx-queue",
        "ports": [
            {
                "name": port.name,
                "trusted": port.trusted,
                "policy": policy_of(port),
                "queues": [_queue(queue) for queue in port.queues if not queue.is_lossless],
            }
            for port in state.ports
        ],
        "map": [(queue, dscps) for queue, dscps in own.dscps.items() if dscps],
        "background": background,
        "background_map": own.dscps[background],
        "background_dscp": state.background_dscp,
        "policies": [
            (policy, meaning, stem, dscps)
            for policy, meaning, stem, dscps in (
                (HOST_POLICY, "hosts may not use", "mltswitch-control", own.remap.dscps if own.remap else ()),
                (UNTRUSTED_POLICY, "ports send that are not trusted", "mltswitch-any", (None,)),
            )
            if policy in used
        ],
        "routes": [
            (str(prefix), "Null0" if route.discards else port, "" if route.discards else str(next_hop))
            for route in state.routes
            for prefix, next_hop, port in (route,)
        ],
    }


def _queue(queue: QueueState) -> dict[str, int | None]:
    return {
        "number": queue.queue,
        "threshold_bytes": queue.ecn_threshold_bytes,
        "guaranteed_percent": queue.minimum.percent if isinstance(queue.minimum, PortShare) else None,
        "shape_kbps": queue.maximum.bps // 1000 if isinstance(queue.maximum, BitRate) else None,
    }


def _play(folder: Path) -> dict[str, Any]:
    written = {"src": "{{ source }}", "dest": f"{folder}/out/{{{{ inventory_hostname }}}}"}
    return {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [{"ansible.builtin.template": {**written, "trim_blocks": True, "lstrip_blocks": True}}],
    }
