"""`mltswitch lab export`, `lab lines` and `lab results`: a plan in vendors' own images."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from rich.console import RenderableType

from mltswitch.app.lab_results import LabResults, lab_results
from mltswitch.cli.command import argument, command, flag, group, option
from mltswitch.cli.fleet import Bar, report_answer
from mltswitch.cli.options import FOLDER, OUTPUT_FOLDER, PLAN, Checked
from mltswitch.cli.output import Answer, table
from mltswitch.cli.switches import Switches
from mltswitch.documents import open_regular
from mltswitch.errors import UserInputError, VerificationError
from mltswitch.export import (
    HOST_IMAGE,
    IMAGES,
    Image,
    LabNetwork,
    choose_images,
    containerlab_files,
    lab_network,
    netlab_files,
)
from mltswitch.outputs import write_together
from mltswitch.plan import Plan, load_plan

Writer = Callable[[LabNetwork, Plan, str], dict[str, str]]
MANAGEMENT: Final = "172.20.77.0/24"


def _network(text: str) -> IPv4Network:
    return IPv4Network(text)


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value or not value.isprintable() or set(value) & set(" \"'${}"):
        raise ValueError(f"{text!r} is no PLATFORM=VALUE")
    return name, value


@dataclass(frozen=True, slots=True)
class Images:
    """Options that say which images stand for the switches."""

    image: tuple[tuple[str, str], ...] = option(
        "Name and tag of your image, such as eos=ceos:4.34.2F; may be given several times.",
        Checked("PLATFORM=IMAGE", _pair),
        multiple=True,
        metavar="PLATFORM=IMAGE",
    )
    kind: tuple[tuple[str, str], ...] = option(
        "containerlab's kind of it, where there are several: sonic=sonic-vs.",
        Checked("PLATFORM=KIND", _pair),
        multiple=True,
        metavar="PLATFORM=KIND",
    )
    host_image: str = option("Image of the hosts.", default=HOST_IMAGE, show_default=True)
    management: IPv4Network = option(
        "Where the tool reaches the nodes.",
        Checked("network", _network),
        default=MANAGEMENT,
        show_default=True,
    )

    def network(self, plan: Plan) -> tuple[LabNetwork, Mapping[str, Image]]:
        """The plan's network in these images."""
        images = choose_images(dict(self.kind), dict(self.image))
        return lab_network(plan, images, self.management), images


FORCE: Final[bool] = flag("Replace files there that say something else, such as ones that you have edited.")


def _export(plan_file: Path, images: Images, output: Path, force: bool, write: Writer) -> Answer:
    plan = load_plan(plan_file)
    network, _ = images.network(plan)
    texts = write(network, plan, images.host_image)
    paths = [str(output / name) for name in texts]
    for name, wanted in texts.items():
        path = output / name
        if force or not path.exists():
            continue
        with open_regular(path) as stream:
            if stream.read() != wanted.encode():
                what = "says something else already"
                raise UserInputError(what, where=str(path), hint="--force replaces it")
    write_together(((output / name, text) for name, text in texts.items()), within=output)
    used = {node.image.platform: node.image for node in network.switches}
    document = {
        "files": paths,
        "switches": [
            {"name": node.name, "kind": node.image.kind, "address": str(node.address)}
            for node in network.switches
        ],
        "images": {platform: image.image for platform, image in used.items()},
        "passwords": sorted({image.password_variable for image in used.values()}),
    }

    def text() -> Iterator[RenderableType]:
        columns = "platform | kind | image, which you bring | user | password in"
        rows = [
            (each.platform, each.kind, each.image, each.user, f"${each.password_variable}")
            for each in used.values()
        ]
        yield table("Images", columns, rows)
        yield from paths
        yield f"bash {output / 'verify.sh'}"

    return Answer(document, text())


@command(
    "mltswitch lab export containerlab plan.yaml -o images",
    "mltswitch lab export containerlab plan.yaml -o images --image eos=ceos:4.34.2F --kind sonic=sonic-vs",
)
def containerlab(
    *, plan_file: Path = PLAN, images: Images, output: Path = OUTPUT_FOLDER, force: bool = FORCE
) -> Answer:
    """Write PLAN's network for containerlab, in images that you bring.

    OUTPUT gets the topology file, an inventory of the switches and verify.sh, which deploys the network,
    pushes the plan, verifies it and takes it back. Passwords come from environment variables.
    """
    return _export(plan_file, images, output, force, containerlab_files)


@command("mltswitch lab export netlab plan.yaml -o images --image eos=ceos:4.34.2F")
def netlab(
    *, plan_file: Path = PLAN, images: Images, output: Path = OUTPUT_FOLDER, force: bool = FORCE
) -> Answer:
    """Write PLAN's network for netlab, in images that you bring: as for containerlab.

    netlab runs SONiC and Cumulus Linux as virtual machines of libvirt, under names of its own.
    """
    return _export(plan_file, images, output, force, netlab_files)


export_group = group(
    "export",
    f"Write a plan's network in images of {', '.join(dict.fromkeys(each.platform for each in IMAGES))}.",
    *(containerlab, netlab),
    examples=("mltswitch lab export containerlab plan.yaml -o images",),
)


@command("mltswitch lab lines plan.yaml -i images/results/inventory")
def lines(*, plan_file: Path = PLAN, switches: Switches) -> Answer:
    """Try every line of PLAN on the switches, and list all that are refused. Nothing takes effect.

    A push stops at the first refused line; this goes on. Only lines that prepare a change are tried: in a
    config session of EOS, in a pending revision of Cumulus Linux. Exit code 5 where one is refused.
    """
    from mltswitch.deploy.trial import try_lines

    plan, inventory = load_plan(plan_file), switches.inventory()
    with Bar("trying", len(inventory.select(switches.limit)), switches.concurrency) as bar:
        trial = try_lines(plan, inventory, limit=switches.limit, fleet=bar.fleet)
    answer = report_answer(trial.report)
    devices = [
        {
            **{key: getattr(each, key) for key in ("device", "platform", "status", "error", "notes")},
            "refusals": [asdict(line) for line in trial.refused.get(each.device, ())],
        }
        for each in trial.report.devices
    ]

    def text() -> Iterator[RenderableType]:
        yield from answer.text
        rows = [(name, each.line, each.answer) for name, found in trial.refused.items() for each in found]
        if rows:
            yield table("Refused lines", "device | line | answer", rows)

    return Answer({"warnings": trial.report.warnings, "devices": devices}, text(), answer.code)


@command("mltswitch lab results images/results")
def results(folder: Path = argument("RESULTS", FOLDER)) -> Answer:
    """Say what every image made of the plan, from the reports that an exported verify.sh left in RESULTS.

    Every line that an image refused is listed. Exit code 5 where a switch did not take the plan, does not run
    it or did not go back.
    """
    found = lab_results(folder)
    document = {**asdict(found), "is_good": found.is_good}
    return Answer(document, _result_text(found), 0 if found.is_good else VerificationError.exit_code)


def _result_text(found: LabResults) -> Iterable[RenderableType]:
    rows = [
        (each.device, each.platform, each.step, each.status, "yes" if each.is_good else "NO", each.why)
        for each in found.outcomes
    ]
    yield table("Switches", "device | platform | step | status | as it should | why not", rows)
    for line in found.missing:
        yield f"no whole report of {line}"
    if found.refusals:
        rows_refused = [(each.device, each.step, each.line, each.answer) for each in found.refusals]
        yield table("Refused lines", "device | step | line | answer", rows_refused)
    else:
        yield "no line was refused"
