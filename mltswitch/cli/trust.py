"""`mltswitch trust`: confirm once which box stands at each address."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from mltswitch.cli.command import JSON, command, flag
from mltswitch.cli.output import Answer, console, progress, table
from mltswitch.cli.switches import Chosen
from mltswitch.deploy import unlock_keys
from mltswitch.deploy.trust import HostKey, add_host_key, host_key, identity, record_serial
from mltswitch.errors import UserInputError
from mltswitch.inventory import Device


@command("mltswitch trust -i inventories/rack --limit leaf1")
def trust(
    chosen: Chosen, yes: bool = flag("Ask nothing: the fingerprints were compared."), as_json: bool = JSON
) -> Answer:
    """Record host keys and serial numbers, so that no other box is ever taken for one of these switches.

    Shows each host key that is not known yet, to be compared with the switch's console, and adds it to the
    known hosts; then asks each switch who it is, and writes `mltswitch_serial` into its host_vars. Keys and
    numbers that are known are checked, and never replaced.
    """
    inventory = chosen.inventory()
    devices = inventory.select(chosen.limit)
    for line in inventory.left_out(chosen.limit):
        progress(f"note: {line}")
    if not yes and (as_json or not sys.stdin.isatty()):
        why = "`--json` is given" if as_json else "standard input is no terminal"
        raise UserInputError(f"nobody can be asked: {why}", hint="add `--yes`")
    keys = {device.name: key for device in devices if (key := host_key(device)) is not None}
    _confirm_keys(devices, keys, yes=yes, quiet=as_json)
    unlock_keys([device for device in devices if device.name in keys])
    found: list[dict[str, Any]] = []
    for device in devices:
        who, key = identity(device), keys.get(device.name)
        known = {"device": device.name, "fingerprint": key.fingerprint if key else ""}
        of_box = ("hostname", "serial", "model", "release")
        found.append(known | {name: getattr(who, name) if who else "" for name in of_box} | {"file": ""})
        if who and device.serial and who.serial.casefold() != device.serial.casefold():
            raise UserInputError(
                f"its serial number is {who.serial}, not {device.serial}: nothing more is recorded",
                where=device.name,
                hint="where the box was replaced, correct mltswitch_serial",
            )
    new = [
        (each, entry)
        for each, entry in zip(devices, found, strict=True)
        if entry["serial"] and not each.serial
    ]
    if not as_json:
        names = ("device", "hostname", "serial", "model", "release")
        rows = ([entry[name] for name in names] for entry in found)
        console().print(table("Switches", "device | calls itself | serial number | model | release", rows))
    if new and not yes and not click.confirm(f"Record {len(new)} serial numbers?"):
        raise click.Abort
    for device, entry in new:
        entry["file"] = str(record_serial(inventory, device, entry["serial"]))
    return Answer(found, (f"{len(devices)} switches, {len(new)} serial numbers recorded",))


def _confirm_keys(devices: Sequence[Device], keys: Mapping[str, HostKey], *, yes: bool, quiet: bool) -> None:
    """Add the keys that are not known yet, once the operator has agreed."""
    new = [(each, keys[each.name]) for each in devices if each.name in keys and keys[each.name].line]
    if not new:
        return
    if not quiet:
        rows = ((device.name, device.endpoint, key.fingerprint) for device, key in new)
        console().print(table("Host keys that are not known", "device | address | fingerprint", rows))
    if not yes and not click.confirm("Do the switches' consoles show these fingerprints?"):
        raise click.Abort
    for device, key in new:
        add_host_key(device, key)
