"""`mltswitch diff`, `push` and `verify`: a plan and the switches that should run it."""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from mltswitch import deploy
from mltswitch.capabilities import Unverified
from mltswitch.cli.output import json_option, last_words, print_json, stderr_console
from mltswitch.cli.render import (
    inventory_options,
    opened,
    print_doubts,
    print_roundings,
    print_unsupported,
    unverified,
)
from mltswitch.cli.verbose import shortened
from mltswitch.deploy import DeviceDifference, DeviceReport, Fleet, FleetReport, Question, Rollout, Status
from mltswitch.deploy.fleet import DEFAULT_CONCURRENCY, MAXIMUM_CONCURRENCY
from mltswitch.errors import UserInputError
from mltswitch.inventory import Inventory
from mltswitch.plan import Plan, load_plan
from mltswitch.targets import Lossless

if TYPE_CHECKING:
    from mltswitch.measure import TestHost

Command = TypeVar("Command", bound=Callable[..., Any])
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""
LONGEST_TIMER_SECONDS: Final = 86_399
"""A day, as EOS writes hh:mm:ss."""
SHOWN_PORTS: Final = 3
"""Of those that differ alike."""


def concurrency_option(command: Command) -> Command:
    """`--concurrency`."""
    return click.option(
        "--concurrency",
        default=DEFAULT_CONCURRENCY,
        show_default=True,
        type=click.IntRange(1, MAXIMUM_CONCURRENCY),
        help="Devices at once.",
    )(command)


def yes_option(command: Command) -> Command:
    """Add an option by which a script says that ports may go down."""
    return click.option("--yes", is_flag=True, help="Ports may go down for it: do not ask.")(command)


def accept_option(command: Command) -> Command:
    """Add options by which a script answers questions, each by itself or all."""
    accepted: Final = "mltswitch.accepted"

    def note(context: click.Context, _: click.Parameter, question: Question | None) -> None:
        if question is not None:
            context.meta.setdefault(accepted, []).append(question)

    def all_of_them(context: click.Context, _: click.Parameter, is_all: bool) -> tuple[Question, ...]:
        return tuple(Question if is_all else context.meta.get(accepted, ()))

    for question, what in (
        (Question.LOSSLESS, "Lossless classes may lose packets: do not ask."),
        (Question.LEAK, "DSCPs may pass which a port may not use: do not ask."),
    ):
        option = click.option(
            f"--accept-{question}",
            flag_value=question,
            expose_value=False,
            is_eager=True,
            callback=note,
            help=what,
        )
        command = option(command)
    return click.option("--accept", is_flag=True, callback=all_of_them, help="Both of these.")(command)


def _arguments(command: Command) -> Command:
    for decorate in (
        json_option,
        concurrency_option,
        inventory_options,
        click.argument("plan_file", type=click.Path(path_type=Path), metavar="PLAN"),
    ):
        command = decorate(command)
    return command


@click.command(epilog="\b\nExample:\n  mltswitch diff plan.yaml -i inventories/lab --limit leaf1")
@_arguments
def diff(
    plan_file: Path,
    inventory_paths: tuple[Path, ...],
    limit: str | None,
    strict: bool,
    concurrency: int,
    as_json: bool,
) -> int:
    """Show, device by device, what a push of PLAN would send. Sends nothing."""
    plan, inventory = _load(plan_file, inventory_paths, limit, strict)
    with Bar("comparing", len(inventory.select(limit)), concurrency) as bar:
        report = deploy.diff(plan, inventory, limit=limit, fleet=bar.fleet)
    return print_report(
        report, as_json, with_changes=True, untested=unverified(plan, inventory.select(limit))
    )


@click.command(
    epilog="\b\nExamples:\n  mltswitch push plan.yaml -i inventories/lab\n"
    "  mltswitch push plan.yaml -i inventories/lab --check --diff\n"
    "  mltswitch push plan.yaml -i inventories/rack --serial 1,10%,50% --max-fail-percentage 5\n"
    "  mltswitch push plan.yaml -i inventories/rack --atomic --confirm 300"
)
@_arguments
@click.option("--check", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option("--diff", "with_changes", is_flag=True, help="Show every line that is sent.")
@accept_option
@click.option(
    "--serial",
    default="100%",
    show_default=True,
    help="Sizes of the waves: 1,10%,50%. The last one repeats.",
)
@click.option(
    "--max-fail-percentage",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 100),
    help="Of a wave's devices; where more fail, no further wave begins.",
)
@click.option("--atomic", is_flag=True, help="One failure takes all devices back.")
@click.option(
    "--confirm",
    "confirm_seconds",
    type=click.IntRange(1, LONGEST_TIMER_SECONDS),
    metavar="SECONDS",
    help="The switches go back by themselves after this time, unless `mltswitch confirm` keeps the change.",
)
@yes_option
@click.option(
    "--device-timeout",
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="Hang up on a switch that takes longer, and take it back.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Begin with no further switch after this time; `mltswitch resume` goes on.",
)
def push(
    plan_file: Path,
    inventory_paths: tuple[Path, ...],
    limit: str | None,
    strict: bool,
    concurrency: int,
    as_json: bool,
    check: bool,
    with_changes: bool,
    accept: tuple[Question, ...],
    serial: str,
    max_fail_percentage: float,
    atomic: bool,
    confirm_seconds: int | None,
    yes: bool,
    device_timeout: float | None,
    deadline: float | None,
) -> int:
    """Make the switches run PLAN: change, read back, compare, save; a switch that fails is taken back."""
    plan, inventory = _load(plan_file, inventory_paths, limit, strict)
    devices = inventory.select(limit)
    rollout = Rollout(serial, max_fail_percentage, atomic, confirm_seconds)
    asks = sys.stdin.isatty()
    if asks and not check and Question.LEAK not in accept:
        leaks = deploy.leaks(plan, inventory, limit=limit)
        _ask("packets keep code points that their port may not use", leaks, "--accept-leak", "Push")
        accept = (*accept, Question.LEAK)
    asks = asks and not (yes and Question.LOSSLESS in accept)
    if check or asks:
        with Bar("comparing", len(devices), concurrency, device_timeout) as bar:
            report = deploy.diff(plan, inventory, limit=limit, fleet=bar.fleet)
    if not check:
        agreed = None if yes else agreed_ports(report, "Push") if asks else {}
        lost = agreed_losses(report, "Push") if asks and Question.LOSSLESS not in accept else {}
        ends = None if deadline is None else time.monotonic() + deadline
        with Bar("pushing", len(devices), concurrency, device_timeout, ends, finishes=True) as bar:
            report = deploy.push(
                plan,
                inventory,
                limit=limit,
                accept=accept,
                may_go_down=agreed,
                may_lose=lost,
                rollout=rollout,
                fleet=bar.fleet,
            )
    untested = unverified(plan, devices)
    code = print_report(report, as_json, with_changes=check or with_changes, untested=untested)
    if confirm_seconds is not None and report.with_status(Status.CHANGED) and not as_json:
        click.echo(f"undone after {confirm_seconds} s, unless: `mltswitch confirm {report.change}`")
    return bar.exit_code(code)


def agreed_ports(report: FleetReport, verb: str) -> dict[str, tuple[str, ...]]:
    """Ask about the ports that a change takes down, and return them by device; raises what `_ask` raises."""
    stopped = {each.device: each.takes_down for each in report.devices if each.takes_down}
    named = {device: ", ".join(ports) for device, ports in stopped.items()}
    _ask("ports stop forwarding for a while", named, "--yes", verb)
    return stopped


def agreed_losses(report: FleetReport, verb: str) -> dict[str, tuple[Lossless, ...]]:
    """Ask about what running lossless classes lose, and return it by device; raises what `_ask` raises."""
    lost = {each.device: each.loses for each in report.devices if each.loses}
    named = {device: deploy.lost_words(loses) for device, loses in lost.items()}
    _ask("packets will be dropped where they were paused so far", named, "--accept-lossless", verb)
    return lost


def _ask(what: str, named: Mapping[str, str], option: str, verb: str) -> None:
    """Ask whether something may happen to the devices that are named, if any.

    Ends the command where it may not; raises UserInputError where nobody can be asked.
    """
    if not named:
        return
    lines = [f"{device}: {words}" for device, words in named.items()]
    if not sys.stdin.isatty():
        raise UserInputError(
            f"{what}, and nobody can be asked; nothing was sent: {'; '.join(lines)}",
            hint=f"`{option}` says that it may be",
        )
    click.echo("\n".join((f"{what.capitalize()}:", *lines)), err=True)
    click.confirm(f"{verb} all the same?", abort=True, err=True)


@click.command(
    epilog="\b\nExamples:\n  mltswitch verify plan.yaml -i inventories/lab --json\n"
    "  mltswitch verify plan.yaml -i inventories/lab --traffic"
)
@_arguments
@click.option(
    "--traffic",
    is_flag=True,
    help="Send packets of every class through the lab, too: do the switches count them in the right queues?",
)
def verify(
    plan_file: Path,
    inventory_paths: tuple[Path, ...],
    limit: str | None,
    strict: bool,
    concurrency: int,
    as_json: bool,
    traffic: bool,
) -> int:
    """Compare what the switches run with PLAN; exit code 5 when something differs."""
    plan, inventory = _load(plan_file, inventory_paths, limit, strict)
    hosts = _lab_hosts(plan, inventory_paths) if traffic else {}
    with Bar("verifying", len(inventory.select(limit)), concurrency) as bar:
        report = deploy.verify(plan, inventory, limit=limit, fleet=bar.fleet)
    if traffic:
        report = _with_traffic(report, plan, inventory, limit, hosts)
    return print_report(
        report, as_json, with_changes=False, untested=unverified(plan, inventory.select(limit))
    )


def _lab_hosts(plan: Plan, inventory_paths: Iterable[Path]) -> dict[str, "TestHost"]:
    """The plan's hosts that the lab of an inventory has; raises MachineError where none is up."""
    from mltswitch.cli.lab import STATE_FOLDER
    from mltswitch.lab import Lab
    from mltswitch.measure import TestHost

    folders = [path if path.is_dir() else path.parent for path in inventory_paths]
    lab = Lab(
        next((each for path in folders if (each := path / STATE_FOLDER).is_dir()), folders[0] / STATE_FOLDER)
    )
    found = {}
    for host in plan.topology.hosts:
        with suppress(UserInputError):  # a host on paper alone
            found[host.name] = TestHost(host.name, tuple(lab.host_namespace(host.name).command(())))
    return found


def _with_traffic(
    report: FleetReport, plan: Plan, inventory: Inventory, limit: str | None, hosts: Mapping[str, "TestHost"]
) -> FleetReport:
    """The report, and in which queues the switches counted the packets that the lab's hosts sent."""
    from mltswitch.measure.queue_check import check_queues

    if report.with_status(Status.FAILED):
        return replace(report, warnings=(*report.warnings, "no packets were sent, since a switch failed"))
    found, notes = check_queues(plan, inventory, hosts, limit=limit)
    devices = tuple(
        replace(each, status=Status.DIFFERS, differences=(*each.differences, *found[each.device]))
        if each.device in found
        else each
        for each in report.devices
    )
    return replace(report, devices=devices, warnings=(*report.warnings, *notes))


def _load(
    plan_file: Path, inventory_paths: tuple[Path, ...], limit: str | None, strict: bool
) -> tuple[Plan, Inventory]:
    plan, inventory = load_plan(plan_file), opened(inventory_paths, limit, strict)
    print_doubts(plan)
    if sys.stdin.isatty():  # passphrases are asked for before a progress bar takes the terminal
        deploy.unlock_keys(inventory.select(limit))
    return plan, inventory


class Bar:
    """Progress on standard error; nothing where that is no terminal.

    Where it `finishes`, the first Ctrl-C lets the devices finish that were begun, and the command report.
    """

    def __init__(
        self,
        title: str,
        total: int,
        concurrency: int,
        device_seconds: float | None = None,
        deadline: float | None = None,
        *,
        finishes: bool = False,
    ) -> None:
        self.fleet = Fleet(
            concurrency=concurrency, progress=self._done, device_seconds=device_seconds, deadline=deadline
        )
        self._progress = Progress(
            TextColumn(title),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=stderr_console(),
            transient=True,
        )
        self._task = self._progress.add_task("", total=total)
        # A shell starts what runs in the background with interrupts ignored.
        self._finishes = finishes and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def __enter__(self) -> "Bar":
        if self._finishes:
            signal.signal(signal.SIGINT, self._interrupt)
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        if self._finishes:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def exit_code(self, code: int) -> int:
        """This one, unless the work was interrupted."""
        return INTERRUPTED if self.fleet.interrupted.is_set() else code

    def _interrupt(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.fleet.interrupted.set()
        last_words("interrupted: the devices that were begun are finished, and no other is begun")

    def _done(self, report: DeviceReport) -> None:
        self._progress.update(
            self._task, advance=1, description=f"{_wave(report)}{report.device}: {report.status}"
        )


def _wave(report: DeviceReport) -> str:
    return f"wave {report.wave}: " if report.wave else ""


def print_report(
    report: FleetReport,
    as_json: bool,
    *,
    with_changes: bool,
    untested: Mapping[str, tuple[Unverified, ...]],
) -> int:
    """What came of each device, and the exit code."""
    if as_json:
        counts = {status.value: len(report.with_status(status)) for status in Status}
        print_json(
            {
                "summary": counts,
                "warnings": report.warnings,
                "unverified": untested,
                "change": report.change,
                "devices": report.devices,
            }
        )
        return report.exit_code
    for warning in report.warnings:
        click.echo(f"warning: {warning}", err=True)
    print_unsupported({device.device: device.shortfalls for device in report.devices})
    for device in report.devices:
        kind = f"{device.platform}, {device.hardware}" if device.hardware else device.platform
        click.echo(f"{_wave(device)}{device.device} ({kind}): {device.status}, {device.seconds:.1f} s")
        if device.error:
            click.echo(f"  {device.error}")
        for note in device.notes:
            click.echo(f"  note: {note}")
        if device.way_back:
            click.echo(f"  way back: {device.way_back}")
        if with_changes or device.status in (Status.DIFFERS, Status.FAILED):
            lines = list(_grouped(device.differences))
            for line in shortened(lines) if device.status is Status.FAILED else lines:
                click.echo(f"  {line}")
        if with_changes and device.change:
            click.echo("".join(f"    {line}\n" for line in device.change.splitlines()), nl=False)
    if with_changes:
        told = [device for device in report.devices if not device.error]
        if any(device.roundings or not device.shortfalls for device in told):
            print_roundings(
                {device.device: (device.platform, device.hardware, device.roundings) for device in told}
            )
    click.echo(
        ", ".join(
            f"{len(report.with_status(status))} {status}" for status in Status if report.with_status(status)
        )
        or "nothing to do"
    )
    if report.change and report.with_status(Status.CHANGED):
        click.echo(f"change {report.change}; `mltswitch rollback {report.change}` takes it back")
    return report.exit_code


def _grouped(differences: Iterable[DeviceDifference]) -> Iterator[str]:
    """What runs → the plan, a line for all ports of a device that differ alike."""
    ports: dict[tuple[str, str, str], list[str]] = {}
    for found in differences:
        ports.setdefault((found.device, found.queue_name, found.change), []).append(found.port)
    for (device, queue, change), names in ports.items():
        more = f" and {len(names) - SHOWN_PORTS} more ports" if len(names) > SHOWN_PORTS else ""
        place = f"{device} {', '.join(names[:SHOWN_PORTS])}{more}".rstrip()
        yield f"{place}, {queue}: {change}" if queue else f"{place}: {change}"
