"""`mltswitch init`: asks what a rack is, and writes a commented fabric file and an inventory of it."""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import click

from mltswitch.capabilities.hardware import packet_memory
from mltswitch.documents import load_document
from mltswitch.errors import UserInputError
from mltswitch.inventory import load_inventory
from mltswitch.outputs import write_together
from mltswitch.plan import Fabric, Topology, check_ports, check_spray_mode, resolve_fabric
from mltswitch.targets import hardware_capabilities, known_hardware, target_for
from mltswitch.targets.template import render_template
from mltswitch.units import parse_bps, parse_bytes

LEAST_STRIDE: Final = 64
MOST_SWITCHES: Final = 4096
UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

Command = TypeVar("Command", bound=Callable[..., Any])


class _Model(click.ParamType[tuple[str, str]]):
    """A switch OS, or one with its box: `sonic`, `sonic/sn3700`."""

    name = "platform[/hardware]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """(platform, hardware), as `mltswitch targets` lists them."""
        platform, _, hardware = str(value).partition("/")
        try:
            return platform, hardware_capabilities(platform, hardware or None).hardware
        except UserInputError as error:
            self.fail(f"{error.what} ({error.expected})", param, ctx)


class _Matching(click.ParamType[str]):
    """Text that a YAML file takes as it stands."""

    def __init__(
        self, name: str, pattern: re.Pattern[str], check: Callable[[str], object] = lambda _: None
    ) -> None:
        self.name = name
        self._pattern = pattern
        self._check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself."""
        if not self._pattern.fullmatch(str(value)):
            self.fail(f"{value!r} is no {self.name}", param, ctx)
        try:
            self._check(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


@dataclass(frozen=True, slots=True)
class _Question:
    option: str
    text: str
    default: Any
    kind: Any


SHARED: Final = "shared"
"""In place of a port's buffer: what the memory of known boxes leaves it."""
_QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?[A-Za-z]+")
_WORD: Final = _Matching("name of letters, digits, dots, hyphens and underscores", WORD)
_RATE: Final = _Matching("rate such as 25Gbps", _QUANTITY, parse_bps)
_SIZE: Final = _Matching(
    "size such as 1MB",
    re.compile(rf"{_QUANTITY.pattern}|{SHARED}"),
    lambda text: text == SHARED or parse_bytes(text),
)
_COUNT: Final = click.IntRange(1, MOST_SWITCHES)
QUESTIONS: Final = (
    _Question("name", "Name of the fabric", "", _WORD),
    _Question("leaf", "Leaves: platform, or platform/hardware", "linux", _Model()),
    _Question("leaves", "How many leaves", 2, _COUNT),
    _Question("spine", "Spines: platform, or platform/hardware", "linux", _Model()),
    _Question("spines", "How many spines", 2, _COUNT),
    _Question("hosts", "Hosts at each leaf", 2, click.IntRange(0, MOST_SWITCHES)),
    _Question("host-rate", "Rate of the hosts' links", "10Gbps", _RATE),
    _Question("breakout", "Parts into which a leaf's port to hosts is broken out", 1, click.IntRange(1, 8)),
    _Question("uplink-rate", "Rate of the links between leaves and spines", "10Gbps", _RATE),
    _Question("mtu", "MTU in bytes", 1500, click.IntRange(576, 9216)),
    _Question("buffer", "Packet memory that one port may fill, or shared: the boxes' own", "", _SIZE),
    _Question("management", "First management address of the switches", "192.0.2.11", str),
    _Question("user", "User to log in as", "admin", _WORD),
    _Question("qos-only", "Do routes and addresses exist already (mltswitch: queues alone)", False, bool),
    _Question("spray", "Spray mode", "alias", click.Choice(["alias", "srv6", "packet", "p4", "entropy"])),
    _Question("burst", "Packets that an agent sends back to back", 1, click.IntRange(1, 1024)),
)


def _options(command: Command) -> Command:
    for question in reversed(QUESTIONS):
        shown = f" Default: {question.default}." if question.default != "" else ""
        name = f"--{question.option}"
        flag = f"{name}/--no-{question.option}" if question.kind is bool else name
        command = click.option(flag, type=question.kind, default=None, help=f"{question.text}.{shown}")(
            command
        )
    return command


@click.command(
    epilog="\b\nExamples:\n  mltswitch init rack\n"
    "  mltswitch init rack --yes --leaf eos --spine sonic/sn3700 --leaves 8 --spines 4 --hosts 16 \\\n"
    "    --host-rate 25Gbps --uplink-rate 100Gbps --mtu 9000 --burst 7"
)
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@_options
@click.option("--yes", is_flag=True, help="Ask nothing: take the defaults of what no option says.")
@click.option("--force", is_flag=True, help="Replace files that are there already.")
def init(folder: Path, yes: bool, force: bool, **given: Any) -> None:
    """Ask what the rack is, and write a commented fabric file and an inventory into FOLDER."""
    try:
        answers = _answers(folder, given, is_silent=yes)
    except click.Abort as end:
        if sys.stdin.isatty() or not isinstance(end.__context__, EOFError):
            raise
        click.echo()
        what = "nobody can be asked: standard input is no terminal"
        raise UserInputError(what, hint="add `--yes` to take the defaults of what no option says") from None
    files = dict(_files(answers))
    present = [str(folder / name) for name in files if (folder / name).exists()]
    if present and not force:
        raise UserInputError("exists already", where=present[0], hint="--force replaces it")
    _check(files)
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


def _answers(folder: Path, given: dict[str, Any], *, is_silent: bool) -> dict[str, Any]:
    """Question → answer: that of its option, else of whoever is asked, else its default."""
    if not is_silent and any(value is None for value in given.values()):
        models = ", ".join(f"{each.platform}/{each.hardware}" for each in known_hardware()[0])
        click.echo(f"Platforms and hardware (mltswitch targets): {models}\n")
    answers: dict[str, Any] = {}
    for question in QUESTIONS:
        key = question.option.replace("-", "_")
        default = question.default
        if key == "name":
            default = UNSAFE.sub("-", folder.resolve().name).strip("-._") or "rack"
        if key == "spray" and answers["qos_only"]:
            default = "entropy"
        if key == "buffer":
            is_known = all(packet_memory(answers[tier][1]) for tier in ("leaf", "spine"))
            default = SHARED if is_known else f"{-(-answers['mtu'] // 1500)}MB"
        answer = given[key]
        if answer is None and is_silent:
            answer = question.kind.convert(default, None, None) if key in ("leaf", "spine") else default
        elif answer is None and question.kind is bool:
            answer = click.confirm(question.text, default=default)
        elif answer is None:
            answer = click.prompt(question.text, default=default, type=question.kind)
        answers[key] = answer
    return answers


def _files(answers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name → text of each file below the folder."""
    stride = LEAST_STRIDE
    while stride <= answers["hosts"]:
        stride *= 2
    yield "fabric.yaml", render_template("init/fabric.yaml.j2", **answers, stride=stride)
    groups: dict[str, list[tuple[str, IPv4Address]]] = {}
    for number, (platform, name) in enumerate(_switches(answers)):
        address = _first_address(answers["management"]) + number
        groups.setdefault(platform, []).append((name, address))
    by_group = {platform.replace("-", "_"): entries for platform, entries in groups.items()}
    yield "hosts.yaml", render_template("init/hosts.yaml.j2", groups=list(by_group.items()))
    for platform in groups:
        text = render_template(
            "init/group.yaml.j2",
            platform=platform,
            session=target_for(platform).session.value,
            user=answers["user"],
        )
        yield f"group_vars/{platform.replace('-', '_')}.yaml", text


def _switches(answers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(platform, name) of each switch."""
    for tier, count in (("spine", "spines"), ("leaf", "leaves")):
        for number in range(answers[count]):
            yield answers[tier][0], f"{tier}{number + 1}"


def _first_address(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except ValueError:
        raise UserInputError(f"{text!r} is no IPv4 address", where="--management") from None


def _check(files: dict[str, str]) -> None:
    """Load what would be written; raises UserInputError or UnsupportedPlanError for what no rack can be."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_together(((folder / file, text) for file, text in files.items()), within=folder)
        try:
            fabric = load_document(folder / "fabric.yaml", Fabric)
            load_inventory(folder / "hosts.yaml").select()
        except UserInputError as error:
            error.where = error.where.removeprefix(f"{folder}/")
            raise
    for switch in Topology(resolve_fabric(fabric, hardware_capabilities)).switches:
        device = hardware_capabilities(switch.platform, switch.hardware)
        check_ports(switch, device)
        check_spray_mode(fabric.spraying.mode, device, switch.name)
