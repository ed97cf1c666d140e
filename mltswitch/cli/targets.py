"""`mltswitch targets`: what each switch OS can do, from the capabilities that planning uses."""

from collections.abc import Iterator

import click

from mltswitch.capabilities import Capabilities
from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.targets import targets
from mltswitch.units import format_bytes

PAGE_HEAD = """\
# Targets

What a switch can do, as planning and rendering see it. This page is made from the same data:
`mltswitch targets --markdown > docs/targets.md`. A plan that a device cannot express exactly is rounded, and
`render` reports each rounding with its effect on the predicted loss; one that it cannot express is refused.

*Unverified* is what the sources leave open and nobody has tested on that hardware. Test it before you rely on
it.
"""


@click.command("targets", epilog="\b\nExample:\n  mltswitch targets --json")
@click.option("--markdown", is_flag=True, help="Print the page docs/targets.md.")
@json_option
def targets_command(markdown: bool, as_json: bool) -> None:
    """Capabilities of each switch OS: queues, units, ranges, and what is unverified."""
    known = [target.hardware(None) for target in targets().values()]
    if as_json:
        print_json(known)
    elif markdown:
        click.echo(targets_page(known), nl=False)
    else:
        rows = [
            (
                entry.platform,
                entry.hardware,
                " ".join(map(str, entry.queues)),
                format_bytes(entry.threshold.step_bytes),
                entry.limit.kind,
                entry.marks_at,
                len(entry.unverified),
            )
            for entry in known
        ]
        columns = (
            "platform",
            "hardware",
            "queues, first served first",
            "S step",
            "limit",
            "marks at",
            "unverified #",
        )
        console().print(table("Targets", columns, rows))


def targets_page(known: list[Capabilities]) -> str:
    """docs/targets.md."""
    return PAGE_HEAD + "".join(line for entry in known for line in _section(entry))


def _section(entry: Capabilities) -> Iterator[str]:
    yield f"\n## `{entry.platform}`: {entry.hardware}\n\n{entry.description}.\n\n"
    yield "| | | source |\n|---|---|---|\n"
    yield f"| queues, first served first | {', '.join(map(str, entry.queues))} | |\n"
    for queue, reason in entry.reserved_queues:
        yield f"| not used: queue {queue} | {reason} | |\n"
    threshold = entry.threshold
    yield (
        f"| ECN threshold | steps of {format_bytes(threshold.step_bytes)}, "
        f"{format_bytes(threshold.minimum_bytes)} to {format_bytes(threshold.maximum_bytes)} "
        f"| {threshold.source} |\n"
    )
    yield f"| limit per queue | {_limit(entry)} | {entry.limit.source} |\n"
    yield f"| averaging | {entry.averaging} | |\n"
    yield f"| marks at | {entry.marks_at} | |\n"
    if entry.unverified:
        yield "\nUnverified:\n\n"
        yield from (f"- {text}\n" for text in entry.unverified)


def _limit(entry: Capabilities) -> str:
    limit = entry.limit
    if limit.kind == "alpha":
        exponents = ", ".join(map(str, limit.alpha_exponents))
        return f"alpha = 2^n of the free pool, n = {exponents}; pool {format_bytes(limit.pool_bytes or 0)}"
    if limit.kind == "bytes":
        return f"steps of {format_bytes(limit.step_bytes)}, up to {format_bytes(limit.maximum_bytes)}"
    return "none: only the port's buffer bounds it"
