"""The whole lab inside one user-mode-linux instance, for users who are not root."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.lab import spool, uml
from mltswitch.lab.model import (
    DeviceAddress,
    DeviceKind,
    DeviceStatus,
    HostStatus,
    LabMode,
    LabStatus,
)
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.processes import read_record
from mltswitch.lab.state import LabState
from mltswitch.plan.fabric import Fabric

REQUEST: Final = "request.json"
"""What the inner lab is built from; lies in the inner state directory."""
STATUS_MODULE: Final = "mltswitch.lab.inside"


def boot(
    paths: LabPaths,
    state: LabState,
    fabric: Fabric,
    devices: Sequence[DeviceAddress],
    progress: Callable[[str], None],
) -> None:
    """Start the instance and wait until the lab inside is up; raises MachineError."""
    inner = LabPaths(paths.inside)
    inner.create()
    inner.spool.mkdir(exist_ok=True, mode=0o700)
    request = {
        "fabric": fabric.model_dump(mode="json", by_alias=True),
        "devices": [asdict(device) for device in devices],
    }
    (inner.root / REQUEST).write_text(json.dumps(request), encoding="utf-8")
    progress("starting user-mode-linux with the whole lab inside")
    process = uml.start(
        paths,
        uml.rootless_init(paths, Path.cwd()),
        state.instance,
        vectors=(),
        memory_mebibytes=uml.ROOTLESS_MEMORY_MEBIBYTES,
    )
    uml.wait_until_ready(paths, process)


def run(paths: LabPaths, argv: Sequence[str]) -> int:
    """Run a command inside; returns its exit code. Raises MachineError when the instance has ended."""
    out, err = spool.own_output()
    return spool.submit(LabPaths(paths.inside).spool, argv, alive=lambda: _alive(paths), out=out, err=err)


def status(paths: LabPaths, state: LabState) -> LabStatus:
    """The inner lab's own report, told as the outer one's; raises MachineError when it is unreadable."""
    out, err = io.BytesIO(), io.BytesIO()
    if not _alive(paths):
        return _dead_status(paths, state)
    argv = [sys.executable, "-P", "-m", STATUS_MODULE, "status", str(paths.root)]
    code = spool.submit(LabPaths(paths.inside).spool, argv, alive=lambda: _alive(paths), out=out, err=err)
    if code:
        raise MachineError(
            f"its status cannot be read: {err.getvalue().decode(errors='replace')}", where="user-mode-linux"
        )
    answer = json.loads(out.getvalue())
    devices = tuple(
        DeviceStatus(**{**device, "kind": DeviceKind(device["kind"])}) for device in answer.pop("devices")
    )
    hosts = tuple(HostStatus(**host) for host in answer.pop("hosts"))
    inner = LabStatus(**{**answer, "mode": LabMode(answer["mode"]), "devices": devices, "hosts": hosts})
    return replace(inner, mode=LabMode.ROOTLESS, missing=(*state.missing, *inner.missing))


def _alive(paths: LabPaths) -> bool:
    identity = read_record(paths.processes / uml.RECORD)
    return identity is not None and identity.alive


def _dead_status(paths: LabPaths, state: LabState) -> LabStatus:
    lost = "user-mode-linux has ended: run `mltswitch lab down`, then `up`"
    return LabStatus(
        mode=state.mode,
        fabric=state.fabric,
        state_directory=str(paths.root),
        private_key=str(paths.private_key),
        known_hosts=str(paths.known_hosts),
        devices=tuple(
            DeviceStatus(d.name, d.platform, d.address, d.port, DeviceKind.ABSENT, answers=False)
            for d in state.devices
        ),
        hosts=tuple(HostStatus(h.name, h.leaf, h.address, h.aliases, "") for h in state.hosts),
        missing=(*state.missing, lost),
    )
