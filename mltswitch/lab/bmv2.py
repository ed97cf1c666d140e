"""Building a lab of BMv2 switches as root: by mininet, or by plain namespaces. No program is loaded."""

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.lab import mininet_bmv2, native
from mltswitch.lab.keys import write_private
from mltswitch.lab.layout import LabHost, LabPort, LabSwitch, Layout, lay_out
from mltswitch.lab.mininet_bmv2 import (
    THRIFT_PORT,
    HostDescription,
    LinkDescription,
    NetworkDescription,
    PortDescription,
    SwitchDescription,
    bmv2_command,
    finish_start,
    host_commands,
    p4runtime_address,
    switch_commands,
    takes_notifications,
)
from mltswitch.lab.model import BMV2_PLATFORM, Records
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.processes import end, read_record, start_recorded
from mltswitch.lab.script import HEADER, cable_batch
from mltswitch.plan import Fabric
from mltswitch.wire.hardware_address import hardware_address

SYSTEM_PYTHON: Final = "/usr/bin/python3"
"""Debian's mininet is a package of the system's Python, which ours may not be."""
MININET_SECONDS: Final = 120.0

_RECORD: Final = "mininet"
_GRACE_SECONDS: Final = 10.0


def network_description(fabric: Fabric) -> str:
    """The fabric's BMv2 switches and their hosts as `network.json`, which mininet_bmv2.py reads.

    Raises UserInputError for a fabric without them.
    """
    layout = lay_out(fabric, (), with_switches=True)
    if layout.platform != BMV2_PLATFORM:
        raise UserInputError("has no bmv2 switches", where=f"fabric {fabric.name}")
    return _json(_description(layout, None, Records()))


def network_inventory(fabric: Fabric) -> str:
    """The inventory of the switches that mn runs: what pushes a plan to them."""
    hosts = "".join(
        f'    {switch.name}: {{ansible_host: "{p4runtime_address(switch.name)}"}}\n'
        for switch in lay_out(fabric, (), with_switches=True).switches
    )
    variables = f"mltswitch_platform: {BMV2_PLATFORM}, mltswitch_thrift_port: {THRIFT_PORT}"
    return f"all:\n  vars: {{{variables}}}\n  hosts:\n{hosts}"


def mininet_file() -> Path:
    """The file for `mn --custom`."""
    return Path(mininet_bmv2.__file__)


def build(layout: Layout, paths: LabPaths, records: Records, progress: Callable[[str], None]) -> None:
    """Switches and hosts as namespaces of this kernel; raises MachineError."""
    progress(f"building {len(layout.switches)} {_kind()} switches and {len(layout.real_hosts)} hosts")
    network = _description(layout, paths, records)
    _make_folders(network)
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
    """The same by a mininet that stays in the background; raises MachineError."""
    progress(
        f"building {len(layout.switches)} {_kind()} switches and {len(layout.real_hosts)} hosts by mininet"
    )
    network = _description(layout, paths, records)
    _make_folders(network)
    network_file = paths.work / "network.json"
    write_private(network_file, _json(network))
    log_file = paths.logs / "mininet.log"
    with log_file.open("ab") as log:
        process = start_recorded(
            [SYSTEM_PYTHON, str(mininet_file()), str(network_file)], paths.processes / _RECORD, log=log
        )
    deadline = time.monotonic() + MININET_SECONDS
    while mininet_bmv2.READY_LINE not in log_file.read_text(encoding="utf-8", errors="replace"):
        if process.poll() is not None:
            raise MachineError("failed while it started", where="mininet")
        if time.monotonic() > deadline:
            raise MachineError(f"was not ready after {MININET_SECONDS:g} s", where="mininet")
        time.sleep(0.05)


def _kind() -> str:
    return "BMv2" if takes_notifications() else "BMv2 (built without nanomsg)"


def has_mininet() -> bool:
    """Whether the system's Python finds mininet, and mininet its helper."""
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
    """End mininet, where it was started; the switches end with their namespaces."""
    identity = read_record(paths.processes / _RECORD)
    if identity is not None:
        end(identity, grace_seconds=_GRACE_SECONDS)


def _json(network: NetworkDescription) -> str:
    return json.dumps(network, indent=2) + "\n"


def _description(layout: Layout, paths: LabPaths | None, records: Records) -> NetworkDescription:
    gateways = {
        port.peer_namespace: port for switch in layout.switches for port in switch.ports if port.peer_is_host
    }
    return NetworkDescription(
        mtu_bytes=layout.mtu_bytes,
        switches=[_switch(switch, paths, records) for switch in layout.switches],
        hosts=[_host(host, gateways[host.namespace]) for host in layout.real_hosts],
        links=list(_links(layout)),
    )


def _switch(switch: LabSwitch, paths: LabPaths | None, records: Records) -> SwitchDescription:
    logs = paths.logs if paths else None
    return SwitchDescription(
        name=switch.name,
        ports=[
            PortDescription(
                number=port.number,
                name=port.name,
                mac=hardware_address(port.address),
                rate_bps=port.rate_bps,
            )
            for port in switch.ports
            if port.peer_namespace
        ],
        log_level="debug" if logs and records.keep_logs else "off",
        log_file=str(logs / f"{switch.name}.log") if logs else "",
        pcap_folder=str(logs / switch.name) if logs and records.pcap else "",
        notifications_file=str(paths.work / f"{switch.name}.ipc") if paths else "",
    )


def _host(host: LabHost, gateway: LabPort) -> HostDescription:
    return HostDescription(
        name=host.name,
        interface=host.interface,
        mac=hardware_address(host.address),
        addresses=[f"{host.address}/30", *(f"{alias}/32" for _, alias in host.aliases)],
        gateway=str(host.gateway),
        gateway_mac=hardware_address(gateway.address),
    )


def _links(layout: Layout) -> Iterator[LinkDescription]:
    names = {switch.namespace: switch.name for switch in layout.switches}
    names |= {host.namespace: host.name for host in layout.real_hosts}
    for switch in layout.switches:
        for port in switch.ports:
            if port.peer_namespace and (port.peer_is_host or port.address < port.peer_address):
                yield LinkDescription(
                    a=f"{switch.name}:{port.name}", b=f"{names[port.peer_namespace]}:{port.peer_port}"
                )


def _make_folders(network: NetworkDescription) -> None:
    for switch in network["switches"]:
        if switch["pcap_folder"]:
            Path(switch["pcap_folder"]).mkdir(mode=0o700, exist_ok=True)


def _process_file(paths: LabPaths, switch: str) -> Path:
    return paths.work / f"{switch}.pid"


def _script(layout: Layout, network: NetworkDescription, paths: LabPaths) -> str:
    """Namespaces and cables at once, then one shell for each namespace."""
    mtu_bytes = network["mtu_bytes"]
    setups = {
        layout_switch.namespace: "\n".join(
            [
                switch_commands(switch, mtu_bytes),
                f"{shlex.join(bmv2_command(switch))} </dev/null >>{shlex.quote(switch['log_file'])} 2>&1 &",
                f"echo $! >{shlex.quote(str(_process_file(paths, switch['name'])))}",
            ]
        )
        for layout_switch, switch in zip(layout.switches, network["switches"], strict=True)
    }
    setups |= {
        layout_host.namespace: host_commands(host, mtu_bytes)
        for layout_host, host in zip(layout.real_hosts, network["hosts"], strict=True)
    }
    shells = [
        f"ip netns exec {namespace} sh -eu <<'END'\n{commands}\nEND\n"
        for namespace, commands in setups.items()
    ]
    return "\n".join([HEADER, cable_batch(layout), *shells])
