"""Builds a lab of BMv2 switches as root, by mininet or in plain namespaces; it loads no P4 program."""

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.lab import mininet_bmv2, native
from mltswitch.lab.bmv2_node import (
    THRIFT_PORT,
    LinkDescription,
    NetworkDescription,
    PortDescription,
    SwitchDescription,
    bmv2_command,
    finish_start,
    p4runtime_address,
    switch_commands,
    takes_notifications,
)
from mltswitch.lab.keys import write_private
from mltswitch.lab.layout import Layout, lay_out
from mltswitch.lab.model import BMV2_PLATFORM, Records
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.processes import end_recorded, start_recorded, wait_for_line
from mltswitch.lab.script import HEADER, cable_batch, host_description, host_setup, in_namespace
from mltswitch.plan import Fabric, Switch
from mltswitch.targets.bmv2.ports import numbered
from mltswitch.wire.hardware_address import hardware_address

SYSTEM_PYTHON: Final = "/usr/bin/python3"
"""The system's Python, for which Debian's mininet is installed; mltswitch may run on another one."""
MININET_SECONDS: Final = 120.0

_RECORD: Final = "mininet"
_GRACE_SECONDS: Final = 10.0


def network_description(fabric: Fabric) -> str:
    """The fabric's BMv2 switches and their hosts as `network.json`, which mininet_bmv2.py reads.

    Raises UserInputError for a fabric without BMv2 switches.
    """
    layout = lay_out(fabric, (), with_switches=True)
    if layout.platform != BMV2_PLATFORM:
        raise UserInputError("has no bmv2 switches", where=f"fabric {fabric.name}")
    return _json(_description(layout, None, Records()))


def network_inventory(fabric: Fabric) -> str:
    """The inventory of the switches that mininet's `mn` runs, by which a plan is pushed to them."""
    hosts = "".join(
        f'    {switch.name}: {{ansible_host: "{p4runtime_address(switch.name)}"}}\n'
        for switch in lay_out(fabric, (), with_switches=True).switches
    )
    variables = f"mltswitch_platform: {BMV2_PLATFORM}, mltswitch_thrift_port: {THRIFT_PORT}"
    return f"all:\n  vars: {{{variables}}}\n  hosts:\n{hosts}"


def mininet_file() -> Path:
    """Path of mininet_bmv2.py, for `mn --custom`."""
    return Path(mininet_bmv2.__file__)


def build(layout: Layout, paths: LabPaths, records: Records, progress: Callable[[str], None]) -> None:
    """Switches and hosts as namespaces of this kernel; raises MachineError."""
    network = _begin(layout, paths, records, progress, "")
    native.run_script(paths, "build", _script(layout, network, paths))
    for switch in network["switches"]:
        process = int(_process_file(paths, switch["name"]).read_text(encoding="ascii"))
        try:
            finish_start(process, switch["name"])
        except OSError as error:
            raise MachineError(str(error)) from None


def build_by_mininet(
    layout: Layout, paths: LabPaths, records: Records, progress: Callable[[str], None]
) -> None:
    """Switches and hosts by a mininet that stays in the background; raises MachineError."""
    network = _begin(layout, paths, records, progress, " by mininet")
    network_file, log_file = paths.work / "network.json", paths.logs / "mininet.log"
    write_private(network_file, _json(network))
    command = [SYSTEM_PYTHON, str(mininet_file()), str(network_file)]
    with log_file.open("ab") as log:
        process = start_recorded(command, paths.processes / _RECORD, log=log)
    wait_for_line(log_file, mininet_bmv2.READY_LINE, process, MININET_SECONDS, where="mininet")


def _begin(
    layout: Layout, paths: LabPaths, records: Records, progress: Callable[[str], None], how: str
) -> NetworkDescription:
    kind = "BMv2" if takes_notifications() else "BMv2 (built without nanomsg)"
    progress(f"building {len(layout.switches)} {kind} switches and {len(layout.real_hosts)} hosts{how}")
    network = _description(layout, paths, records)
    for switch in network["switches"]:
        if switch["pcap_folder"]:
            Path(switch["pcap_folder"]).mkdir(mode=0o700, exist_ok=True)
    return network


def has_mininet() -> bool:
    """Whether the system's Python can import mininet, and mininet's helper program is installed."""
    try:
        done = subprocess.run(
            [SYSTEM_PYTHON, "-c", "import mininet.net, shutil; assert shutil.which('mnexec')"],
            capture_output=True,
            check=False,
            cwd="/",
        )
    except OSError:
        return False
    return done.returncode == 0


def stop(paths: LabPaths) -> None:
    """End mininet, if it was started; BMv2 switches in plain namespaces end with their namespaces."""
    end_recorded(paths.processes / _RECORD, grace_seconds=_GRACE_SECONDS)


def _json(network: NetworkDescription) -> str:
    return json.dumps(network, indent=2) + "\n"


def _description(layout: Layout, paths: LabPaths | None, records: Records) -> NetworkDescription:
    return NetworkDescription(
        mtu_bytes=layout.fabric.ports.mtu_bytes,
        switches=[_switch(switch, layout, paths, records) for switch in layout.switches],
        hosts=[host_description(host) for host in layout.real_hosts],
        links=[
            LinkDescription(a=f"{switch.name}:{port.name}", b=f"{port.peer}:{port.peer_port}")
            for switch, port in layout.cables()
        ],
    )


def _switch(switch: Switch, layout: Layout, paths: LabPaths | None, records: Records) -> SwitchDescription:
    logs, numbers = paths.logs if paths else None, numbered(port.name for port in switch.ports)
    return SwitchDescription(
        name=switch.name,
        ports=[
            PortDescription(
                number=numbers[port.name],
                name=port.name,
                mac=hardware_address(port.address),
                rate_bps=port.rate_bps,
            )
            for port in layout.cabled_ports(switch)
        ],
        log_level="debug" if logs and records.keep_logs else "off",
        log_file=str(logs / f"{switch.name}.log") if logs else "",
        pcap_folder=str(logs / switch.name) if logs and records.pcap else "",
        notifications_file=str(paths.work / f"{switch.name}.ipc") if paths else "",
    )


def _process_file(paths: LabPaths, switch: str) -> Path:
    return paths.work / f"{switch}.pid"


def _script(layout: Layout, network: NetworkDescription, paths: LabPaths) -> str:
    """Namespaces and cables at once, then one shell for each namespace."""
    shells = []
    for switch in network["switches"]:
        log_file, process_file = switch["log_file"], str(_process_file(paths, switch["name"]))
        commands = [
            switch_commands(switch, network["mtu_bytes"]),
            f"{shlex.join(bmv2_command(switch))} </dev/null >>{shlex.quote(log_file)} 2>&1 &",
            f"echo $! >{shlex.quote(process_file)}",
        ]
        shells.append(in_namespace(layout.namespace(switch["name"]), "\n".join(commands)))
    shells += [host_setup(host, layout) for host in layout.real_hosts]
    return "\n".join([HEADER, cable_batch(layout), *shells])
