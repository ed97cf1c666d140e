"""Builds the lab as root: all of it on this kernel, or its switches in user-mode-linux."""

import subprocess
from collections.abc import Callable
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.lab import uml
from mltswitch.lab.keys import write_private
from mltswitch.lab.layout import MANAGEMENT_NAMESPACE, Layout
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.processes import end_group, read_record, start_recorded
from mltswitch.lab.script import (
    hosts_script,
    native_script,
    switch_files,
    switches_script,
    taps_script,
    vector_arguments,
)

SCRIPT_SECONDS: Final = 120.0

_RECORD: Final = "script"


def build(layout: Layout, paths: LabPaths, progress: Callable[[str], None]) -> None:
    """Switches and hosts as network namespaces of this kernel; raises MachineError."""
    if not layout.switches:
        return
    progress(f"building {len(layout.switches)} Linux switches and {len(layout.real_hosts)} hosts")
    _write_switch_files(layout, paths)
    run_script(paths, "build", native_script(layout, paths))


def build_around_uml(layout: Layout, paths: LabPaths, instance: str, progress: Callable[[str], None]) -> None:
    """Switches in one user-mode-linux instance, hosts as namespaces of this kernel; raises MachineError."""
    if not layout.switches:
        return
    progress(f"starting {len(layout.switches)} Linux switches in user-mode-linux")
    _write_switch_files(layout, paths)
    run_script(paths, "taps", taps_script(layout))
    uml.start(
        paths,
        uml.switches_init(switches_script(layout, paths)),
        instance,
        vectors=vector_arguments(layout),
        namespace=MANAGEMENT_NAMESPACE,
    )
    progress(f"connecting {len(layout.real_hosts)} hosts")
    run_script(paths, "hosts", hosts_script(layout))


def run_script(paths: LabPaths, name: str, script: str) -> None:
    """Run a script, whose background processes outlive it, with its output in a log of its own.

    Raises MachineError.
    """
    file, record = paths.work / f"{name}.sh", paths.processes / _RECORD
    write_private(file, script)
    with (paths.logs / f"{name}.log").open("ab") as log:
        process = start_recorded(["sh", str(file)], record, log=log)
    try:
        code = process.wait(SCRIPT_SECONDS)
    except subprocess.TimeoutExpired:
        raise MachineError(f"was not done after {SCRIPT_SECONDS:g} s", where=str(file)) from None
    record.unlink(missing_ok=True)
    if code:
        raise MachineError(f"ended with {code}", where=str(file))


def stop(paths: LabPaths) -> None:
    """End the script of an `up` that was killed or gave up, if it still runs."""
    leader = read_record(paths.processes / _RECORD)
    if leader is not None:
        end_group(leader)


def _write_switch_files(layout: Layout, paths: LabPaths) -> None:
    for name, text in switch_files(layout).items():
        write_private(paths.work / name, text)
