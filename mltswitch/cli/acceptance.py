"""`mltswitch acceptance`: does a real port do what the plan says of it?"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from mltswitch.cli.lab import STATE_FOLDER
from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.deploy import connect
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.inventory import Device, load_inventory
from mltswitch.lab import Lab
from mltswitch.measure import TestHost, open_hosts
from mltswitch.measure.acceptance import AcceptanceResult, Check, DeviceCounters, Verdict, accept, find_place
from mltswitch.measure.counters import silence
from mltswitch.plan import load_plan
from mltswitch.targets import target_for
from mltswitch.units import format_bps, format_seconds

EXIT_CODES: Final = {Verdict.ACCEPTED: 0, Verdict.FAILED: 5, Verdict.INCONCLUSIVE: 6}
CONNECT_SECONDS: Final = 10
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"
_HOST: Final = re.compile(rf"(?P<name>{_NAME})(=(?P<place>[A-Za-z0-9_][A-Za-z0-9_.:@/\[\]%-]{{0,254}}))?")


@click.command(
    epilog="\b\nExamples:\n  mltswitch acceptance leaf2 --plan plan.yaml --hosts host1,host3,host4\n"
    "  mltswitch acceptance leaf7 --plan plan.yaml -i inventories/rack \\\n"
    "      --hosts n61=root@10.0.0.61,n62=root@10.0.0.62,n63=root@10.0.0.63"
)
@click.argument("device_name", metavar="DEVICE")
@click.option(
    "--hosts",
    required=True,
    help="Hosts of the fabric, separated by commas: NAME, or NAME=USER@ADDRESS as ssh takes it.",
)
@click.option(
    "--plan",
    "plan_file",
    default="plan.yaml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The plan that was pushed.",
)
@click.option(
    "-i",
    "--inventory",
    "inventory_path",
    default="inventories/lab",
    show_default=True,
    type=click.Path(path_type=Path),
)
@click.option(
    "--receiver", help="Who receives; default: the last of --hosts right behind DEVICE, else the last."
)
@click.option("--port", help="The port under test; default: the one that leads to the receiver.")
@click.option(
    "--ssh-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration file for ssh to the hosts; default: the user's.",
)
@json_option
def acceptance(
    device_name: str,
    hosts: str,
    plan_file: Path,
    inventory_path: Path,
    receiver: str | None,
    port: str | None,
    ssh_config: Path | None,
    as_json: bool,
) -> int:
    """Overload one port of DEVICE from real hosts and compare what comes out with the plan.

    Every gradient class in turn, with ECT and Not-ECT datagrams; a class takes seconds. A check that
    fails is measured again, up to three times in all. Exit code 5
    when a check fails, 6 when none fails but marks and drops above S could not be seen for every
    gradient class. The port should carry nothing else meanwhile.
    """
    plan = load_plan(plan_file)
    device = _device(inventory_path, device_name)
    places = _parse_hosts(hosts)
    place = find_place(plan, device.switch, tuple(places), receiver, port)
    if place.platform != device.platform:
        raise UserInputError(
            f"its platform is {device.platform} in the inventory, {place.platform} in the plan's fabric",
            where=device.name,
        )
    reach = _Reach(inventory_path, places, ssh_config)
    receiving = reach.host(place.receiver)
    senders = [
        replace(reach.host(name), destinations=destinations)
        for name, destinations in zip(place.senders, place.destinations, strict=True)
    ]
    with (
        _counters(device) as counters,
        open_hosts(plan, receiving, senders, place.tested.packet_bytes) as running,
    ):
        result = accept(place, running, counters, progress)
    if as_json:
        accepted = result.verdict is Verdict.ACCEPTED
        print_json({"accepted": accepted, "verdict": result.verdict, "result": result})
    else:
        _print(result)
    return EXIT_CODES[result.verdict]


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


def _parse_hosts(text: str) -> dict[str, str]:
    """Host of the fabric → what ssh calls it."""
    found: dict[str, str] = {}
    for part in text.split(","):
        match = _HOST.fullmatch(part.strip())
        if match is None:
            raise UserInputError(
                f"{part.strip()[:60]!r} is not understood",
                where="--hosts",
                expected="NAME or NAME=USER@ADDRESS, separated by commas",
            )
        if match["name"] in found:
            raise UserInputError(f"{match['name']} is named twice", where="--hosts")
        found[match["name"]] = match["place"] or match["name"]
    return found


class _Reach:
    """How hosts are reached: as namespaces of this inventory's lab where it has them, else by ssh."""

    def __init__(self, inventory_path: Path, places: dict[str, str], ssh_config: Path | None) -> None:
        self._lab = Lab(inventory_path / STATE_FOLDER)
        self._places = places
        self._ssh_config = ssh_config
        self._in_lab = {host.name for host in self._lab.status().hosts}

    def host(self, name: str) -> TestHost:
        place = self._places[name]
        if place == name and name in self._in_lab:
            return TestHost(name, tuple(self._lab.host_namespace(name).command(())))
        return TestHost(name, ssh_prefix(place, self._ssh_config), quoted=True)


def ssh_prefix(place: str, config: Path | None) -> tuple[str, ...]:
    """The OpenSSH client, which asks nothing, checks the host's key, and ends with our input."""
    options = ("BatchMode=yes", "StrictHostKeyChecking=yes", f"ConnectTimeout={CONNECT_SECONDS}")
    return (
        "ssh",
        "-T",
        *(("-F", str(config)) if config is not None else ()),
        *(word for option in options for word in ("-o", option)),
        "--",
        place,
    )


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


def _print(result: AcceptanceResult) -> None:
    screen = console()
    screen.print(
        f"{result.switch} port {result.port} ({result.platform}/{result.hardware}), "
        f"{format_bps(result.rate_bps)}, packets of {result.packet_bytes} B; {', '.join(result.senders)} "
        f"to {result.receiver}, {result.seconds:.0f} s on the wire. The empty path's delay spreads by "
        f"{format_seconds(result.noise_seconds)}, the slowest sender was "
        f"{format_seconds(result.late_seconds)} late.",
        markup=False,
    )
    rows = [
        (check.question, check.traffic_class, _result(check), check.seen or "-", check.expected or "-")
        for check in result.checks
    ]
    screen.print(table("Acceptance", ("check", "class", "result", "seen", "expected"), rows))
    for check in result.checks:
        if check.holds is False:
            click.echo(
                f"FAIL {check.traffic_class}, {check.question}: seen {check.seen}, "
                f"expected {check.expected}: {check.explanation}"
            )
    for reason, classes in _unchecked(result).items():
        click.echo(f"not checked: {', '.join(classes)}: {reason}")
    hardware = f"{result.platform}/{result.hardware}"
    for item in result.settled:
        click.echo(f"settled on this port of {hardware}: {item.sentence} ({item.id})")
    for item in result.still_open:
        click.echo(f"still open on {hardware}: {item.sentence} ({item.id})")
    results = [check.result for check in result.checks]
    counts = {text: results.count(text) for text in ("pass", "FAIL", "not checked")}
    summary = ", ".join(f"{count} {text}" for text, count in counts.items() if count)
    if result.verdict is Verdict.INCONCLUSIVE:
        unseen = ", ".join(f"{check.traffic_class} {check.question}" for check in result.missing)
        click.echo(f"inconclusive: accepted is only a port that was seen to do this: {unseen or 'anything'}")
    click.echo(f"{result.verdict}: {summary}")


def _result(check: Check) -> str:
    return check.result if check.measured == 1 else f"{check.result} (measured {check.measured} times)"


def _unchecked(result: AcceptanceResult) -> dict[str, list[str]]:
    """Reason → what it keeps from being checked."""
    found: dict[str, list[str]] = {}
    for check in result.checks:
        if check.holds is None:
            found.setdefault(check.explanation, []).append(f"{check.traffic_class} {check.question}")
    return found
