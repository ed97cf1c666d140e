"""`mltswitch init`: asks what a rack is, and writes a commented fabric file and an inventory of it."""

import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, cast

import click

from mltswitch.app.rack import check_rack, rack_files
from mltswitch.capabilities.hardware import packet_memory
from mltswitch.cli.command import Declared, argument, command, flag, option
from mltswitch.cli.options import FOLDER, Checked
from mltswitch.errors import UserInputError
from mltswitch.outputs import write_together
from mltswitch.targets import hardware_capabilities, known_hardware
from mltswitch.units import parse_bps, parse_bytes

MOST_SWITCHES: Final = 4096
UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
SHARED: Final = "shared"
"""Stands for a port's buffer that is computed from the memory of known boxes."""
_QUANTITY: Final = r"[0-9]+(\.[0-9]+)?[A-Za-z]+"


def _hardware(text: str) -> tuple[str, str]:
    """(platform, hardware) of a switch OS, or of one with its box: `sonic`, `sonic/sn3700`."""
    platform, _, hardware = text.partition("/")
    try:
        return platform, hardware_capabilities(platform, hardware or None).hardware
    except UserInputError as error:
        raise ValueError(f"{error.what} ({error.expected})") from None


def _matching(name: str, pattern: str, check: Callable[[str], object] = lambda _: None) -> Checked:
    """The type of text that a YAML file takes as it stands."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r} is no {name}")
        check(text)
        return text

    return Checked(name, parse)


_MODEL: Final = Checked("platform[/hardware]", _hardware)
_WORD: Final = _matching(
    "name of letters, digits, dots, hyphens and underscores", r"[A-Za-z0-9][A-Za-z0-9_.-]*"
)
_RATE: Final = _matching("rate such as 25Gbps", _QUANTITY, parse_bps)
_SIZE: Final = _matching(
    "size such as 1MB", f"{_QUANTITY}|{SHARED}", lambda text: text == SHARED or parse_bytes(text)
)
_COUNT: Final = click.IntRange(1, MOST_SWITCHES)


def _asked(text: str, default: Any, kind: Any, *flags: str) -> Any:
    """An option, and the question that is asked where it is not given."""
    shown = f" Default: {default}." if default != "" else ""
    return option(f"{text}.{shown}", kind, *flags, default=None)._replace(question=(text, default))


@dataclass(frozen=True, slots=True)
class Rack:
    """The description of a rack: each field is an option, and is asked for where the option is not given."""

    name: str | None = _asked("Name of the fabric", "", _WORD)
    leaf: Any = _asked("Leaves: platform, or platform/hardware", "linux", _MODEL)
    leaves: int | None = _asked("How many leaves", 2, _COUNT)
    spine: Any = _asked("Spines: platform, or platform/hardware", "linux", _MODEL)
    spines: int | None = _asked("How many spines", 2, _COUNT)
    hosts: int | None = _asked("Hosts at each leaf", 2, click.IntRange(0, MOST_SWITCHES))
    host_rate: str | None = _asked("Rate of the hosts' links", "10Gbps", _RATE)
    breakout: int | None = _asked(
        "Parts into which a leaf's port to hosts is broken out", 1, click.IntRange(1, 8)
    )
    uplink_rate: str | None = _asked("Rate of the links between leaves and spines", "10Gbps", _RATE)
    mtu: int | None = _asked("MTU in bytes", 1500, click.IntRange(576, 9216))
    buffer: str | None = _asked("Packet memory that one port may fill, or shared: the boxes' own", "", _SIZE)
    management: str | None = _asked("First management address of the switches", "192.0.2.11", str)
    user: str | None = _asked("User to log in as", "admin", _WORD)
    qos_only: bool | None = _asked(
        "Do routes and addresses exist already (mltswitch: queues alone)",
        False,
        bool,
        "--qos-only/--no-qos-only",
    )
    spray: str | None = _asked(
        "Spray mode", "alias", click.Choice(["alias", "srv6", "packet", "p4", "entropy"])
    )
    burst: int | None = _asked("Packets that an agent sends back to back", 1, click.IntRange(1, 1024))

    def answers(self, folder: Path, *, is_silent: bool) -> dict[str, Any]:
        """Field → its value, from the option, from the answer to the question, or else the default."""
        given = asdict(self)
        if not is_silent and None in given.values():
            models = ", ".join(f"{each.platform}/{each.hardware}" for each in known_hardware()[0])
            click.echo(f"Platforms and hardware (mltswitch targets): {models}\n")
        found: dict[str, Any] = {}
        for key, declared in QUESTIONS.items():
            (text, default), kind = declared.question, declared.settings["type"]
            if key == "name":
                default = UNSAFE.sub("-", folder.resolve().name).strip("-._") or "rack"
            if key == "spray" and found["qos_only"]:
                default = "entropy"
            if key == "buffer":
                is_known = all(packet_memory(found[tier][1]) for tier in ("leaf", "spine"))
                default = SHARED if is_known else f"{-(-found['mtu'] // 1500)}MB"
            answer = given[key]
            if answer is None and is_silent:
                answer = kind.convert(default, None, None) if kind is _MODEL else default
            elif answer is None and kind is bool:
                answer = click.confirm(text, default=default)
            elif answer is None:
                answer = click.prompt(text, default=default, type=kind)
            found[key] = answer
        return found


QUESTIONS: Final = {each.name: cast(Declared, each.default) for each in fields(Rack)}


@command(
    "mltswitch init rack",
    "mltswitch init rack --yes --leaf eos --spine sonic/sn3700 --leaves 8 --spines 4 --hosts 16 \\\n"
    "    --host-rate 25Gbps --uplink-rate 100Gbps --mtu 9000 --burst 7",
)
def init(
    *,
    folder: Path = argument(None, FOLDER, default="."),
    rack: Rack,
    yes: bool = flag("Ask nothing: take the defaults of what no option says."),
    force: bool = flag("Replace files that are there already."),
) -> None:
    """Ask what the rack is, and write a commented fabric file and an inventory into FOLDER."""
    try:
        answers = rack.answers(folder, is_silent=yes)
    except click.Abort as end:
        if sys.stdin.isatty() or not isinstance(end.__context__, EOFError):
            raise
        click.echo()
        what = "nobody can be asked: standard input is no terminal"
        raise UserInputError(what, hint="add `--yes` to take the defaults of what no option says") from None
    files = dict(rack_files(answers))
    present = [str(folder / name) for name in files if (folder / name).exists()]
    if present and not force:
        raise UserInputError("exists already", where=present[0], hint="--force replaces it")
    check_rack(files)
    write_together(((folder / name, text) for name, text in files.items()), within=folder)
    for name in files:
        click.echo(folder / name)
    plan = folder / "plan.yaml"
    configs = (folder.parent if folder.name else Path("..")) / f"{folder.resolve().name}-configs"
    click.echo(
        f"\nNext:\n  mltswitch plan --profile resnet50 --fabric {folder / 'fabric.yaml'} -o {plan}\n"
        f"  mltswitch render {plan} -i {folder} -o {configs}\n"
        f"  mltswitch diff {plan} -i {folder}"
    )
