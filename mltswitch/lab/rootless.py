"""The whole lab inside one user-mode-linux instance, for users who are not root."""

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from mltswitch.errors import MachineError
from mltswitch.lab import spool, uml
from mltswitch.lab.model import DeviceKind, LabMode, LabStatus
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.processes import read_record
from mltswitch.lab.state import LabState

REQUEST: Final = "request.json"
"""File name of the outer lab's record in the inner state directory, from which the inner lab is built."""
STATUS_MODULE: Final = "mltswitch.lab.inside"
STATUS: Final = TypeAdapter(LabStatus)


def boot(paths: LabPaths, state: LabState, progress: Callable[[str], None]) -> None:
    """Start the user-mode-linux instance and wait until the lab inside is up; raises MachineError."""
    inner = LabPaths(paths.inside)
    inner.create()
    inner.spool.mkdir(exist_ok=True, mode=0o700)
    (inner.root / REQUEST).write_text(state.model_dump_json(by_alias=True), encoding="utf-8")
    progress("starting user-mode-linux with the whole lab inside")
    init = uml.rootless_init(paths, Path.cwd())
    uml.start(paths, init, state.instance, vectors=(), memory_mebibytes=uml.ROOTLESS_MEMORY_MEBIBYTES)


def run(paths: LabPaths, argv: Sequence[str]) -> int:
    """Run a command inside the rootless lab; returns its exit code. Raises MachineError if the lab ended."""
    out, err = sys.stdout.buffer, sys.stderr.buffer
    return spool.submit(LabPaths(paths.inside).spool, argv, alive=lambda: _alive(paths), out=out, err=err)


def status(paths: LabPaths, state: LabState) -> LabStatus:
    """The inner lab's report as the outer lab's status; raises MachineError when it is unreadable."""
    if not _alive(paths):
        return _dead_status(paths, state)
    out, err = io.BytesIO(), io.BytesIO()
    argv = [sys.executable, "-P", "-m", STATUS_MODULE, "status", str(paths.root)]
    code = spool.submit(LabPaths(paths.inside).spool, argv, alive=lambda: _alive(paths), out=out, err=err)
    if code:
        raise MachineError(
            f"its status cannot be read: {err.getvalue().decode(errors='replace')}", where="user-mode-linux"
        )
    inner = STATUS.validate_json(out.getvalue())
    return replace(inner, mode=LabMode.ROOTLESS, missing=(*state.missing, *inner.missing))


def _alive(paths: LabPaths) -> bool:
    identity = read_record(paths.processes / uml.RECORD)
    return identity is not None and identity.alive


def _dead_status(paths: LabPaths, state: LabState) -> LabStatus:
    found = state.report(paths)
    lost = "user-mode-linux has ended: run `mltswitch lab down`, then `up`"
    return replace(
        found,
        devices=tuple(replace(device, kind=DeviceKind.ABSENT) for device in found.devices),
        hosts=tuple(replace(host, namespace="") for host in found.hosts),
        missing=(*state.missing, lost),
    )
