"""`mltswitch trust`: confirm once which box stands at each address."""

import sys
from pathlib import Path
from typing import Any

import click

from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.cli.render import inventory_options, opened
from mltswitch.deploy import unlock_keys
from mltswitch.deploy.trust import HostKey, add_host_key, host_key, identity, record_serial
from mltswitch.errors import UserInputError
from mltswitch.inventory import Device


@click.command(epilog="\b\nExample:\n  mltswitch trust -i inventories/rack --limit leaf1")
@inventory_options
@click.option("--yes", is_flag=True, help="Ask nothing: the fingerprints were compared.")
@json_option
def trust(
    inventory_paths: tuple[Path, ...], limit: str | None, strict: bool, yes: bool, as_json: bool
) -> None:
    """Record host keys and serial numbers, so that no other box is ever taken for one of these switches.

    Shows each host key that is not known yet, to be compared with the switch's console, and adds it to the
    known hosts; then asks each switch who it is, and writes `mltswitch_serial` into its host_vars. Keys and
    numbers that are known are checked, and never replaced.
    """
    inventory = opened(inventory_paths, limit, strict)
    devices = inventory.select(limit)
    for line in inventory.left_out(limit):
        progress(f"note: {line}")
    if not yes and (as_json or not sys.stdin.isatty()):
        why = "`--json` is given" if as_json else "standard input is no terminal"
        raise UserInputError(f"nobody can be asked: {why}", hint="add `--yes`")
    keys = {device.name: key for device in devices if (key := host_key(device)) is not None}
    _confirm_keys(devices, keys, yes=yes, quiet=as_json)
    unlock_keys([device for device in devices if device.name in keys])
    found: list[dict[str, Any]] = []
    for device in devices:
        who = identity(device)
        key = keys.get(device.name)
        found.append(
            {
                "device": device.name,
                "fingerprint": key.fingerprint if key else "",
                "hostname": who.hostname if who else "",
                "serial": who.serial if who else "",
                "model": who.model if who else "",
                "release": who.release if who else "",
                "file": "",
            }
        )
        if who and device.serial and who.serial.casefold() != device.serial.casefold():
            raise UserInputError(
                f"its serial number is {who.serial}, not {device.serial}: nothing more is recorded",
                where=device.name,
                hint="where the box was replaced, correct mltswitch_serial",
            )
    new = [
        (device, entry)
        for device, entry in zip(devices, found, strict=True)
        if entry["serial"] and not device.serial
    ]
    if not as_json:
        columns = ("device", "calls itself", "serial number", "model", "release")
        names = ("device", "hostname", "serial", "model", "release")
        console().print(table("Switches", columns, ([entry[name] for name in names] for entry in found)))
    if new and not yes and not click.confirm(f"Record {len(new)} serial numbers?"):
        raise click.Abort
    for device, entry in new:
        entry["file"] = str(record_serial(inventory, device, entry["serial"]))
    if as_json:
        print_json(found)
    else:
        click.echo(f"{len(devices)} switches, {len(new)} serial numbers recorded")


def _confirm_keys(devices: tuple[Device, ...], keys: dict[str, HostKey], *, yes: bool, quiet: bool) -> None:
    new = [
        (device, keys[device.name]) for device in devices if device.name in keys and keys[device.name].line
    ]
    if not new:
        return
    if not quiet:
        rows = ((device.name, device.endpoint, key.fingerprint) for device, key in new)
        console().print(table("Host keys that are not known", ("device", "address", "fingerprint"), rows))
    if not yes and not click.confirm("Do the switches' consoles show these fingerprints?"):
        raise click.Abort
    for device, key in new:
        add_host_key(device, key)
