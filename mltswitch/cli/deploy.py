"""`mltswitch diff`, `push` and `verify`: a plan and the switches that should run it."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from mltswitch import deploy
from mltswitch.app.rendering import unverified
from mltswitch.cli.command import command, flag, option
from mltswitch.cli.fleet import Bar, report_answer
from mltswitch.cli.options import PLAN
from mltswitch.cli.output import Answer
from mltswitch.cli.switches import Switches, print_doubts
from mltswitch.deploy import FleetReport, Question, Rollout, Status
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.inventory import Inventory
from mltswitch.plan import Plan, load_plan
from mltswitch.targets import Lossless

LONGEST_TIMER_SECONDS: Final = 86_399
"""The longest timer in seconds: one day, as EOS writes hh:mm:ss."""
DIFFERENT: Final = 1
"""Exit code of `diff --exit-code` where a device differs from the plan."""
YES: Final[Any] = flag("Ports may go down for it: do not ask.")


@dataclass(frozen=True, slots=True)
class Accepted:
    """Options by which a script answers questions in advance, one by one or all."""

    accept: bool = flag("Both of these.")
    accept_leak: bool = flag("DSCPs may pass which a port may not use: do not ask.")
    accept_lossless: bool = flag("Lossless classes may lose packets: do not ask.")

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions that are answered in advance and not asked."""
        given = {Question.LEAK: self.accept_leak, Question.LOSSLESS: self.accept_lossless}
        return tuple(each for each in Question if self.accept or given[each])


@command(
    "mltswitch diff plan.yaml -i inventories/lab --limit leaf1",
    "mltswitch diff plan.yaml -i inventories/lab --exit-code",
)
def diff(
    *,
    plan_file: Path = PLAN,
    switches: Switches,
    exit_code: bool = flag("Exit code 1 where a device differs from PLAN, as `git diff --exit-code` has it."),
) -> Answer:
    """Show, device by device, what a push of PLAN would send. Sends nothing.

    The exit code is 0 where a push would mend what differs, 5 where it would not, and 4 where a device could
    not be read. With --exit-code, any difference is 1.
    """
    plan, inventory = _load(plan_file, switches)
    devices = inventory.select(switches.limit)
    with Bar("comparing", len(devices), switches.concurrency) as bar:
        report = deploy.diff(plan, inventory, limit=switches.limit, fleet=bar.fleet)
    answer = report_answer(report, with_changes=True, untested=unverified(plan, devices))
    differs = any(each.status is not Status.OK for each in report.devices)
    if exit_code and differs and answer.code != DeviceError.exit_code:
        return replace(answer, code=DIFFERENT)
    return answer


@command(
    "mltswitch push plan.yaml -i inventories/lab",
    "mltswitch push plan.yaml -i inventories/lab --check --diff",
    "mltswitch push plan.yaml -i inventories/rack --serial 1,10%,50% --max-fail-percentage 5",
    "mltswitch push plan.yaml -i inventories/rack --atomic --confirm 300",
)
def push(
    *,
    plan_file: Path = PLAN,
    switches: Switches,
    check: bool = flag("Show what would be sent, and send nothing."),
    with_changes: bool = flag("Show every line that is sent.", "--diff"),
    accepted: Accepted,
    serial: str = option(
        "Sizes of the waves: 1,10%,50%. The last one repeats.", default="100%", show_default=True
    ),
    max_fail_percentage: float = option(
        "Of a wave's devices; where more fail, no further wave begins.",
        click.FloatRange(0, 100),
        default=0.0,
        show_default=True,
    ),
    atomic: bool = flag("One failure takes all devices back."),
    confirm_seconds: int | None = option(
        "The switches go back by themselves after this time, unless `mltswitch confirm` keeps the change.",
        click.IntRange(1, LONGEST_TIMER_SECONDS),
        "--confirm",
        variable="CONFIRM",
        metavar="SECONDS",
    ),
    yes: bool = YES,
    device_timeout: float | None = option(
        "Hang up on a switch that takes longer, and take it back.", click.FloatRange(1), metavar="SECONDS"
    ),
    deadline: float | None = option(
        "Begin with no further switch after this time; `mltswitch resume` goes on.",
        click.FloatRange(0),
        metavar="SECONDS",
    ),
) -> Answer:
    """Make the switches run PLAN: change, read back, compare, save; a switch that fails is taken back."""
    plan, inventory = _load(plan_file, switches)
    limit, concurrency, accept = switches.limit, switches.concurrency, accepted.questions
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
    timed = confirm_seconds is not None and report.with_status(Status.CHANGED)
    note = f"undone after {confirm_seconds} s, unless: `mltswitch confirm {report.change}`"
    return report_answer(
        report,
        with_changes=check or with_changes,
        untested=unverified(plan, devices),
        is_interrupted=bar.is_interrupted,
        last=[note] if timed else (),
    )


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


@command(
    "mltswitch verify plan.yaml -i inventories/lab --json",
    "mltswitch verify plan.yaml -i inventories/lab --traffic",
)
def verify(
    *,
    plan_file: Path = PLAN,
    switches: Switches,
    traffic: bool = flag(
        "Send packets of every class through the lab, too: do the switches count them in the right queues?"
    ),
) -> Answer:
    """Compare what the switches run with PLAN; exit code 5 when something differs."""
    plan, inventory = _load(plan_file, switches)
    devices = inventory.select(switches.limit)
    if traffic:
        from mltswitch.app.lab_hosts import lab_hosts, with_traffic

        hosts = lab_hosts(plan, switches.inventory_paths)
    with Bar("verifying", len(devices), switches.concurrency) as bar:
        report = deploy.verify(plan, inventory, limit=switches.limit, fleet=bar.fleet)
    if traffic:
        report = with_traffic(report, plan, inventory, switches.limit, hosts)
    return report_answer(report, untested=unverified(plan, devices))


def _load(plan_file: Path, switches: Switches) -> tuple[Plan, Inventory]:
    plan, inventory = load_plan(plan_file), switches.inventory()
    print_doubts(plan)
    if sys.stdin.isatty():  # passphrases are asked for before a progress bar takes the terminal
        deploy.unlock_keys(inventory.select(switches.limit))
    return plan, inventory
