"""`mltswitch doctor`: what this machine has of what commands need, and what mends the rest."""

from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType

from mltswitch.app.doctor import Need, operator_needs
from mltswitch.cli.command import command, flag
from mltswitch.cli.output import Answer, table
from mltswitch.errors import MachineError, printable
from mltswitch.hostagent.doctor.report import Status, worst


@command("mltswitch doctor", "mltswitch doctor --missing", "mltswitch doctor --json")
def doctor(missing: bool = flag("Tell only of what is missing.")) -> Answer:
    """Find out what this machine has of what commands need, and what mends the rest.

    It looks at packages, programs, host keys, the journal's folder and the kernel, and changes nothing. The
    exit code is 3 where something is missing that every command needs; what a few commands need is a warning.
    On a training host, `mltswitch agent doctor` examines the host and the paths to its peers.
    """
    needs = tuple(operator_needs())
    shown = tuple(each for each in needs if not missing or each.status is not Status.OK)
    status = worst(needs)
    code = MachineError.exit_code if status is Status.ERROR else 0
    return Answer({"status": status, "needs": shown}, _text(needs, shown), code)


def _text(needs: tuple[Need, ...], shown: tuple[Need, ...]) -> Iterator[RenderableType]:
    rows = (
        (
            "ok" if each.status is Status.OK else each.status.upper(),
            *map(printable, (each.where, each.what, each.needed_for, each.hint)),
        )
        for each in shown
    )
    yield table("This machine", " | examined | found | needed for | what mends it", rows)
    counts = Counter(each.status for each in needs)
    yield f"Errors: {counts[Status.ERROR]}, warnings: {counts[Status.WARNING]}. All seen now."
