"""Runs the acceptance test of one port: finds the device, the hosts, and the way to reach them."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from mltswitch.app import Tell
from mltswitch.app.lab_hosts import lab_host, lab_of
from mltswitch.app.rendering import require_platform
from mltswitch.deploy import connect
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.inventory import Device, load_inventory
from mltswitch.measure import TestHost, open_hosts
from mltswitch.measure.acceptance import AcceptanceResult, DeviceCounters, accept, find_place
from mltswitch.measure.counters import silence
from mltswitch.plan import Plan
from mltswitch.targets import target_for

CONNECT_SECONDS: Final = 10
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"
_HOST: Final = re.compile(rf"(?P<name>{_NAME})(=(?P<place>[A-Za-z0-9_][A-Za-z0-9_.:@/\[\]%-]{{0,254}}))?")


def acceptance_of(
    plan: Plan,
    device_name: str,
    inventory_path: Path,
    hosts: str,
    *,
    receiver: str | None = None,
    port: str | None = None,
    ssh_config: Path | None = None,
    progress: Tell,
) -> AcceptanceResult:
    """Overload one port of a device from hosts, and judge what comes out.

    Args:
        plan: What the device should run.
        device_name: The device's name in the inventory.
        inventory_path: The inventory; its lab's hosts are reached in their namespaces, all others by ssh.
        hosts: Names of the plan's hosts, separated by commas, each with `=USER@ADDRESS` where ssh needs it.
        receiver: The host that receives; None: the last one right behind the device, else the last.
        port: The port under test; None: the one that leads to the receiver.
        ssh_config: The configuration file of ssh; None: the user's.
        progress: Hears what is being measured.

    Raises UserInputError for an unknown device or host.
    """
    device = _device(inventory_path, device_name)
    places = parse_hosts(hosts)
    place = find_place(plan, device.switch, tuple(places), receiver, port)
    require_platform(device, place.platform)
    reach = _reach(inventory_path, places, ssh_config)
    receiving = reach(place.receiver)
    senders = [
        replace(reach(name), destinations=destinations)
        for name, destinations in zip(place.senders, place.destinations, strict=True)
    ]
    with (
        _counters(device) as counters,
        open_hosts(plan, receiving, senders, place.tested.packet_bytes) as running,
    ):
        return accept(place, running, counters, progress)


def _device(inventory_path: Path, name: str) -> Device:
    inventory = load_inventory(inventory_path)
    if name in inventory.unusable:
        inventory.select(name, {name})
    devices = {device.name: device for device in inventory.devices}
    if name not in devices:
        raise UserInputError(
            f"no device {name!r} in {inventory_path}", where="DEVICE", expected=f"one of {', '.join(devices)}"
        )
    return devices[name]


def parse_hosts(text: str) -> dict[str, str]:
    """Name of a host in the fabric → its name for ssh, from text; raises UserInputError."""
    found: dict[str, str] = {}
    for part in map(str.strip, text.split(",")):
        match = _HOST.fullmatch(part)
        if match is None:
            raise UserInputError(
                f"{part[:60]!r} is not understood",
                where="--hosts",
                expected="NAME or NAME=USER@ADDRESS, separated by commas",
            )
        if match["name"] in found:
            raise UserInputError(f"{match['name']} is named twice", where="--hosts")
        found[match["name"]] = match["place"] or match["name"]
    return found


def _reach(
    inventory_path: Path, places: Mapping[str, str], ssh_config: Path | None
) -> Callable[[str], TestHost]:
    """How hosts are reached: as namespaces of this inventory's lab where it has them, else by ssh."""
    lab = lab_of(inventory_path)
    in_lab = {host.name for host in lab.status().hosts}

    def reach(name: str) -> TestHost:
        if places[name] == name and name in in_lab:
            return lab_host(lab, name)
        return TestHost(name, ssh_prefix(places[name], ssh_config), quoted=True)

    return reach


def ssh_prefix(place: str, config: Path | None) -> tuple[str, ...]:
    """The words of an OpenSSH command that asks nothing, checks the host's key, and ends with our input."""
    options = ("BatchMode=yes", "StrictHostKeyChecking=yes", f"ConnectTimeout={CONNECT_SECONDS}")
    of_config = () if config is None else ("-F", str(config))
    return ("ssh", "-T", *of_config, *(word for each in options for word in ("-o", each)), "--", place)


@contextmanager
def _counters(device: Device) -> Iterator[DeviceCounters]:
    """One session with the device for all questions; without one the counters stay unchecked."""
    target = target_for(device.platform, where=device.name)
    if target.counters is None:
        yield DeviceCounters(None, target.no_counters or silence(target), target=None)
        return
    with ExitStack() as stack:
        try:
            session = stack.enter_context(connect(device, target))
        except MltswitchError as error:
            counters = DeviceCounters(None, str(error), target=None)
        else:
            counters = DeviceCounters(session, target=target)
        yield counters
