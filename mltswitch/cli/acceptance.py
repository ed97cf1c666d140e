"""`mltswitch acceptance`: does a real port do what the plan says of it?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from rich.console import RenderableType
from rich.text import Text

from mltswitch.app.acceptance import acceptance_of
from mltswitch.cli.command import argument, command, option
from mltswitch.cli.options import PATH
from mltswitch.cli.output import Answer, progress, table
from mltswitch.measure.acceptance import AcceptanceResult, Check, Verdict
from mltswitch.plan import load_plan
from mltswitch.units import format_bps, format_seconds

EXIT_CODES: Final = {Verdict.ACCEPTED: 0, Verdict.FAILED: 5, Verdict.INCONCLUSIVE: 6}


@command(
    "mltswitch acceptance leaf2 --plan plan.yaml --hosts host1,host3,host4",
    "mltswitch acceptance leaf7 --plan plan.yaml -i inventories/rack \\\n"
    "      --hosts n61=root@10.0.0.61,n62=root@10.0.0.62,n63=root@10.0.0.63",
)
def acceptance(
    device_name: str = argument("DEVICE"),
    hosts: str = option(
        "Hosts of the fabric, separated by commas: NAME, or NAME=USER@ADDRESS as ssh takes it.", required=True
    ),
    plan_file: Path = option(
        "The plan that was pushed.", PATH, "--plan", default="plan.yaml", show_default=True
    ),
    inventory_path: Path = option(
        None, PATH, "-i", "--inventory", variable="INVENTORY", default="inventories/lab", show_default=True
    ),
    receiver: str | None = option(
        "Who receives; default: the last of --hosts right behind DEVICE, else the last."
    ),
    port: str | None = option("The port under test; default: the one that leads to the receiver."),
    ssh_config: Path | None = option(
        "Configuration file for ssh to the hosts; default: the user's.",
        click.Path(path_type=Path, exists=True, dir_okay=False),
        variable="SSH_CONFIG",
    ),
) -> Answer:
    """Overload one port of DEVICE from real hosts and compare what comes out with the plan.

    Every gradient class in turn, with ECT and Not-ECT datagrams; a class takes seconds. A check that
    fails is measured again, up to three times in all. Exit code 5 when a check fails, 6 when none fails
    but marks and drops above the ECN threshold S could not be seen for every gradient class. The port
    should carry nothing else meanwhile.
    """
    result = acceptance_of(
        load_plan(plan_file),
        device_name,
        inventory_path,
        hosts,
        receiver=receiver,
        port=port,
        ssh_config=ssh_config,
        progress=progress,
    )
    return acceptance_answer(result)


def acceptance_answer(result: AcceptanceResult) -> Answer:
    """The printed answer: the verdict, each check, and what is settled and open about the hardware."""
    accepted = result.verdict is Verdict.ACCEPTED
    document = {"accepted": accepted, "verdict": result.verdict, "result": result}
    return Answer(document, _text(result), EXIT_CODES[result.verdict])


def _text(result: AcceptanceResult) -> Iterator[RenderableType]:
    hardware = f"{result.platform}/{result.hardware}"
    yield Text(
        f"{result.switch} port {result.port} ({hardware}), {format_bps(result.rate_bps)}, packets of "
        f"{result.packet_bytes} B; {', '.join(result.senders)} to {result.receiver}, {result.seconds:.0f} s "
        f"on the wire. The empty path's delay spreads by {format_seconds(result.noise_seconds)}, the slowest "
        f"sender was {format_seconds(result.late_seconds)} late."
    )
    rows = [
        (check.question, check.traffic_class, _result(check), check.seen or "-", check.expected or "-")
        for check in result.checks
    ]
    yield table("Acceptance", "check | class | result | seen | expected", rows)
    unchecked: dict[str, list[str]] = {}
    for check in result.checks:
        if check.holds is False:
            yield (
                f"FAIL {check.traffic_class}, {check.question}: seen {check.seen}, "
                f"expected {check.expected}: {check.explanation}"
            )
        elif check.holds is None:
            unchecked.setdefault(check.explanation, []).append(f"{check.traffic_class} {check.question}")
    for reason, classes in unchecked.items():
        yield f"not checked: {', '.join(classes)}: {reason}"
    for item in result.settled:
        yield f"settled on this port of {hardware}: {item.sentence} ({item.id})"
    for item in result.still_open:
        yield f"still open on {hardware}: {item.sentence} ({item.id})"
    results = [check.result for check in result.checks]
    counts = {text: results.count(text) for text in ("pass", "FAIL", "not checked")}
    if result.verdict is Verdict.INCONCLUSIVE:
        unseen = ", ".join(f"{check.traffic_class} {check.question}" for check in result.missing)
        yield f"inconclusive: accepted is only a port that was seen to do this: {unseen or 'anything'}"
    yield f"{result.verdict}: " + ", ".join(f"{count} {text}" for text, count in counts.items() if count)


def _result(check: Check) -> str:
    return check.result if check.measured == 1 else f"{check.result} (measured {check.measured} times)"
