"""Makes the fabric file and the inventory of a rack from its description."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mltswitch.documents import load_document
from mltswitch.errors import UserInputError
from mltswitch.inventory import load_inventory
from mltswitch.outputs import write_together
from mltswitch.plan import Fabric, Topology, check_ports, check_spray_mode, resolve_fabric
from mltswitch.targets import hardware_capabilities, target_for
from mltswitch.targets.template import render_template

LEAST_STRIDE: Final = 64


def check_rack(files: Mapping[str, str]) -> None:
    """Load a rack's files as a check; raises UserInputError or UnsupportedPlanError."""
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


def rack_files(answers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and text of each file below the rack's folder; raises UserInputError for a wrong address."""
    stride = LEAST_STRIDE
    while stride <= answers["hosts"]:
        stride *= 2
    yield "fabric.yaml", render_template("init/fabric.yaml.j2", **answers, stride=stride)
    switches = [
        (answers[tier][0], f"{tier}{number + 1}")
        for tier, count in (("spine", "spines"), ("leaf", "leaves"))
        for number in range(answers[count])
    ]
    try:
        first = IPv4Address(answers["management"])
    except ValueError:
        raise UserInputError(f"{answers['management']!r} is no IPv4 address", where="--management") from None
    if int(first) + len(switches) - 1 > int(IPv4Address("255.255.255.255")):
        problem = f"{first} leaves no addresses for {len(switches)} switches"
        raise UserInputError(problem, where="--management", expected="a lower address")
    groups: dict[str, list[tuple[str, IPv4Address]]] = {}
    for number, (platform, name) in enumerate(switches):
        groups.setdefault(platform, []).append((name, first + number))
    by_group = [(platform.replace("-", "_"), entries) for platform, entries in groups.items()]
    yield "hosts.yaml", render_template("init/hosts.yaml.j2", groups=by_group)
    for platform, (group, _) in zip(groups, by_group, strict=True):
        session = target_for(platform).session.value
        text = render_template("init/group.yaml.j2", platform=platform, session=session, user=answers["user"])
        yield f"group_vars/{group}.yaml", text
