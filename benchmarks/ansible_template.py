"""Ansible's template module on devices of a fleet: the peer of `benchmarks.render_fleet`."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from unittest.mock import patch

import yaml

from benchmarks.fleet import Member, fleet
from mltswitch.cli.render import render_device
from mltswitch.targets import template

TEMPLATES: Final = {"eos": "eos/mltswitch.txt.j2"}
"""Platforms whose one file comes from one template, and whose values are plain data."""
FOLDER: Final = Path(template.__file__).parents[1] / "templates"
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
    members = list(islice((entry for entry in fleet() if entry.device.platform in TEMPLATES), devices))
    for member in members:
        values = _template_values(member) | {"source": str(FOLDER / TEMPLATES[member.device.platform])}
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
    """The values that the renderer gives to its template, as plain data."""
    given: dict[str, object] = {}

    def record(name: str, /, **values: object) -> str:
        # The first call writes the file; a parser may render parts of it again to compare.
        if not given and name == TEMPLATES[member.device.platform]:
            given.update(values)
        return template.render_template(name, **values)

    with patch(f"mltswitch.targets.{member.device.platform}.render.render_template", record):
        render_device(member.plan, member.device)
    return {name: _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _play(folder: Path) -> dict[str, Any]:
    written = {"src": "{{ source }}", "dest": f"{folder}/out/{{{{ inventory_hostname }}}}"}
    return {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [{"ansible.builtin.template": {**written, "trim_blocks": True, "lstrip_blocks": True}}],
    }
