"""`mltswitch targets`: what each switch OS can do on each hardware, and the figures behind it."""

import click

from mltswitch.capabilities import Unverified
from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.cli.targets_page import (
    MATRIX_COLUMNS,
    RELEASE_COLUMNS,
    figures_of,
    known_releases,
    matrix_row,
    sources_of,
    targets_page,
    value_text,
)
from mltswitch.targets import known_hardware


@click.command(
    "targets",
    epilog="\b\nExamples:\n  mltswitch targets --json\n  mltswitch targets --hardware sn2700\n"
    "  mltswitch targets --unverified",
)
@click.option("--hardware", metavar="NAME", help="Print the figures of a chip or a box, with their sources.")
@click.option("--unverified", is_flag=True, help="Print what nobody has tested on real hardware.")
@click.option("--markdown", is_flag=True, help="Print the page docs/targets.md.")
@json_option
def targets_command(hardware: str | None, unverified: bool, markdown: bool, as_json: bool) -> None:
    """Capabilities of each switch OS on each hardware: queues, units, ranges, and what is unverified."""
    if markdown and (as_json or unverified or hardware is not None):
        raise click.UsageError("--markdown prints the whole page; it goes with no other option")
    if unverified and hardware is not None:
        raise click.UsageError("--unverified lists all hardware; it does not go with --hardware")
    if hardware is not None:
        _print_figures(hardware, as_json=as_json)
    elif unverified:
        _print_unverified(as_json=as_json)
    elif markdown:
        click.echo(targets_page(), nl=False)
    else:
        _print_matrix(as_json=as_json)


def _print_matrix(*, as_json: bool) -> None:
    usable, refused = known_hardware()
    if as_json:
        releases = [
            {"platform": platform, "versions": each.versions, "source": each.source}
            for platform, each in known_releases()
        ]
        print_json({"hardware": usable, "refused": refused, "releases": releases})
        return
    console().print(table("Targets", MATRIX_COLUMNS, map(matrix_row, usable)))
    if refused:
        rows = [(entry.platform, entry.hardware, entry.reason) for entry in refused]
        console().print(table("Refused", ("platform", "hardware", "reason"), rows))
    rows = [(platform, each.versions, each.source) for platform, each in known_releases()]
    console().print(table("Releases", RELEASE_COLUMNS, rows))


def _print_unverified(*, as_json: bool) -> None:
    """Each item once for a platform, with the hardware that it concerns."""
    found: dict[str, dict[Unverified, list[str]]] = {}
    for entry in known_hardware()[0]:
        for item in entry.unverified:
            found.setdefault(entry.platform, {}).setdefault(item, []).append(entry.hardware)
    if as_json:
        print_json(
            {
                platform: [{**item._asdict(), "hardware": hardware} for item, hardware in items.items()]
                for platform, items in found.items()
            }
        )
        return
    for items in found.values():
        for item, hardware in items.items():
            click.echo(f"{item.id} ({', '.join(hardware)}): {item.sentence}")


def _print_figures(name: str, *, as_json: bool) -> None:
    figures = figures_of(name)
    if as_json:
        print_json(figures)
        return
    rows = [
        (figure.hardware, figure.name, value_text(figure), figure.source)
        for figure in figures
        if figure.value is not None
    ]
    console().print(table(f"Figures of {name}", ("of", "figure", "value", "source"), rows))
    unknown = [(figure.hardware, figure.name, figure.source) for figure in figures if figure.value is None]
    if unknown:
        console().print(table("Not known", ("of", "figure", "looked for"), unknown))
    console().print(table("Short names", ("name", "source"), sources_of(figures).items()))
