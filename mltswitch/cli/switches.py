"""Options that choose plans and devices, and texts on what those devices cannot do."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType

from mltswitch.cli.command import JSON, flag, option
from mltswitch.cli.options import PATH
from mltswitch.cli.output import progress, table
from mltswitch.deploy.fleet import DEFAULT_CONCURRENCY, MAXIMUM_CONCURRENCY
from mltswitch.inventory import Inventory, load_inventory
from mltswitch.plan import Plan
from mltswitch.targets import Rounding
from mltswitch.targets.state import FIELD_WORDS


@dataclass(frozen=True, slots=True)
class Chosen:
    """Options that choose devices of inventories."""

    inventory_paths: tuple[Path, ...] = option(
        "File or folder, as Ansible reads it; may be given several times.",
        PATH,
        "-i",
        "--inventory",
        required=True,
        multiple=True,
        variable="INVENTORY",
    )
    limit: str | None = option(
        "Devices or groups, by Ansible's patterns: leafs:!leaf3,spine*.", variable="LIMIT"
    )
    strict: bool = flag("Refuse hosts that are no switches of ours.")

    def inventory(self) -> Inventory:
        """The inventory; raises UserInputError where a strict one has hosts of other platforms."""
        inventory = load_inventory(*self.inventory_paths)
        if self.strict:
            inventory.refuse_foreign(self.limit)
        return inventory


CONCURRENCY: Final[Any] = option(
    "Devices at once.",
    click.IntRange(1, MAXIMUM_CONCURRENCY),
    variable="CONCURRENCY",
    default=DEFAULT_CONCURRENCY,
    show_default=True,
)


@dataclass(frozen=True, slots=True)
class Switches(Chosen):
    """Options of commands that talk with the devices of inventories, many at once."""

    concurrency: int = CONCURRENCY
    as_json: bool = JSON


def print_doubts(plan: Plan) -> None:
    """Say on standard error that a plan leaves losses beyond the tolerance, or was edited by hand."""
    if plan.provenance.is_edited:
        progress("warning: the plan's thresholds were changed by hand")
    for text in plan.unmet:
        progress(f"warning: the plan does not hold at its load: {text}")


def unsupported_lines(unsupported: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """One line for each thing that the plan asks for and devices cannot do, with the names of the devices."""
    devices: dict[str, list[str]] = {}
    for device, sentences in unsupported.items():
        for sentence in sentences:
            devices.setdefault(sentence, []).append(device)
    for sentence, names in devices.items():
        yield f"not done: {sentence} ({name_ranges(names)})"


def roundings_table(roundings: Mapping[str, tuple[str, str, tuple[Rounding, ...]]]) -> RenderableType:
    """What devices cannot express exactly, from device → (platform, hardware, roundings)."""
    shown = []
    for device, (platform, hardware, entries) in roundings.items():
        of_port: dict[str, list[Rounding]] = {}
        for entry in entries:
            of_port.setdefault(entry.port, []).append(entry)
        shown += [(device, (platform, hardware, _in_words(found))) for found in of_port.values()]
    columns = "ports | platform | hardware | planned → rendered"
    return (
        table("Rounded", columns, port_rows(shown)) if shown else "Every device expresses the plan exactly."
    )


def port_rows(shown: Iterable[tuple[str, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """One table row for all ports, of all devices, that show the same, from pairs (device, shown cells)."""
    rows: dict[tuple[str, ...], Counter[str]] = {}
    for device, cells in shown:
        rows.setdefault(cells, Counter())[device] += 1
    return [(_places(ports), *cells) for cells, ports in rows.items()]


def _in_words(roundings: Iterable[Rounding]) -> str:
    """A line for each field; classes that get the same are told by what that is."""
    lines: dict[str, list[Rounding]] = {}
    for entry in roundings:
        lines.setdefault(FIELD_WORDS.get(entry.field, entry.field), []).append(entry)
    return "\n".join(
        f"{field}: {found[0].given} for {', '.join(entry.traffic_class for entry in found)}"
        if len(found) > 1 and len({entry.given for entry in found}) == 1
        else f"{field}: " + ", ".join(f"{each.traffic_class} {each.wanted} → {each.given}" for each in found)
        for field, found in lines.items()
    )


def _places(ports: Mapping[str, int]) -> str:
    """Devices and their ports, `leaf1, 20 ports each`; devices with other numbers of ports apart."""
    groups: dict[int, list[str]] = {}
    for device, count in ports.items():
        groups.setdefault(count, []).append(device)
    return "; ".join(
        f"{name_ranges(names)}, {count} port{'s' * (count > 1)}{' each' * (len(names) > 1)}"
        for count, names in groups.items()
    )


def name_ranges(names: Iterable[str]) -> str:
    """Names as text, joined to a range where they count up."""
    runs: list[list[tuple[str, int | None]]] = []
    for name in names:
        stem = name.rstrip("0123456789")
        number = int(name[len(stem) :]) if name != stem else None
        if runs and number is not None and runs[-1][-1] == (stem, number - 1):
            runs[-1].append((stem, number))
        else:
            runs.append([(stem, number)])
    ends = (
        [f"{stem}{'' if number is None else number}" for stem, number in (run[0], run[-1])] for run in runs
    )
    return ", ".join(
        first if first == last else f"{first}–{last}"  # noqa: RUF001  (a range)
        for first, last in ends
    )
