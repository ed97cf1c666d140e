"""State in the language of NVUE: a file of commands, and the same objects as YAML; and both read back."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.documents import parse_yaml
from mltswitch.errors import UserInputError
from mltswitch.targets.addresses import ipv4_address, ipv4_network
from mltswitch.targets.base import FileError, LineError
from mltswitch.targets.common import NO_NEXT_HOP
from mltswitch.targets.cumulus.commands import parse_commands, route_commands, set_commands
from mltswitch.targets.cumulus.document import (
    DISCARD,
    STATIC,
    leaves_of,
    next_hop_type,
    port_leaves,
    route_texts,
    same_port_leaves,
)
from mltswitch.targets.cumulus.interpret import Interpreter, queues_of
from mltswitch.targets.cumulus.leaves import Leaves, Path, Tree, expanded, nest
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import PortState, RouteState, SwitchState
from mltswitch.targets.template import render_template

COMMANDS: Final = "mltswitch.txt"
YAML: Final = "mltswitch.yaml"
_SECTION_OF: Final = {
    "egress-scheduler": "queues",
    "congestion-control": "queues",
    "egress-shaper": "queues",
    "egress-queue-mapping": "classification",
    "mapping": "classification",
    "acl": "rewriting",
    "interface": "ports",
}
"""Objects, and those below `qos`."""
_INDENT: Final = "    "
"""Of what stands below `- set:`."""


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    commands: list[str]


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.txt` and `mltswitch.yaml`."""
    del capabilities
    return {COMMANDS: render_commands(state), YAML: render_yaml(state)}


def render_commands(state: SwitchState) -> str:
    """`nv set` commands of all leaves."""
    by_title: dict[str, Leaves] = {"queues": {}, "classification": {}, "rewriting": {}, "ports": {}}
    for path, value in port_leaves(state).items():
        by_title[_SECTION_OF[path[1] if path[0] == "qos" else path[0]]][path] = value
    sections = [_Section(title, set_commands(leaves)) for title, leaves in by_title.items()]
    sections.append(_Section("routes", route_commands(route_texts(state.routes))))
    return render_template("cumulus/mltswitch.txt.j2", sections=sections)


def render_yaml(state: SwitchState) -> str:
    """The tree for `nv config patch`."""
    return render_template("cumulus/mltswitch.yaml.j2", lines=yaml_lines(state))


def yaml_lines(state: SwitchState) -> list[str]:
    """What stands below `- set:`, a line for each name: `yaml_tree` as text."""
    return [*_port_lines(state), *_route_lines(state.routes)]


@partial(remembering_last, same=same_port_leaves)
def _port_lines(state: SwitchState) -> list[str]:
    lines: list[str] = []
    _add_yaml_lines(yaml_tree(port_leaves(state)), _INDENT, lines)
    return lines


@remembering_last
def _route_lines(routes: tuple[RouteState, ...]) -> list[str]:
    """Without a tree, as there are hundreds of them and all have one form."""
    if not routes:
        return []
    hops: dict[str, list[str]] = {}
    for prefix, hop in route_texts(routes):
        hops.setdefault(prefix, []).append(hop)
    lines = [f"{_INDENT}{'  ' * depth}{name}:" for depth, name in enumerate(STATIC)]
    indent = _INDENT + "  " * len(STATIC)
    for prefix, next_hops in hops.items():
        lines += (f"{indent}{prefix}:", f"{indent}  via:")
        for hop in next_hops:
            lines += (f"{indent}    {hop}:", f"{indent}      type: {next_hop_type(hop)}")
    return lines


def _add_yaml_lines(tree: Tree, indent: str, lines: list[str]) -> None:
    for name, value in tree.items():
        # Numbers are names here, not numbers.
        quoted = f"'{name}'" if name.isdigit() else name
        if isinstance(value, dict) and value:
            lines.append(f"{indent}{quoted}:")
            _add_yaml_lines(value, indent + "  ", lines)
        else:
            lines.append(f"{indent}{quoted}: {value or '{}'}")


def yaml_tree(leaves: Mapping[Path, str]) -> Tree:
    """The leaves with what `nv set` adds by itself: the types of interfaces and next hops."""
    tree = nest(leaves)
    for interface in tree.get("interface", {}).values():
        interface["type"] = "swp"
    for path in leaves:
        if path[0] == "vrf":
            _add_type(tree, path)
    return tree


def _add_type(tree: Tree, path: Path) -> None:
    node = tree
    for name in path:
        node = node[name]
    node["type"] = next_hop_type(path[-1])


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`."""
    del capabilities
    leaves: Leaves = {}
    lines: dict[Path, int] = {}
    routes: list[RouteState] = []
    for number, path, value in (
        (number, *leaf) for number, found in parse_commands(files[COMMANDS]) for leaf in found
    ):
        if path in lines:
            raise LineError(number, "", f"{' '.join(path)} is set twice")
        lines[path] = number
        if path[0] != "vrf":
            leaves[path] = value
            continue
        try:
            next_hop = NO_NEXT_HOP if path[6] == DISCARD else ipv4_address(path[6])
            routes.append(RouteState(ipv4_network(path[4]), next_hop, ""))
        except ValueError as error:
            raise LineError(number, "", str(error)) from None
    set_to = (value for path, value in leaves.items() if path[-2:] == ("set", "dscp"))
    background_dscp = int(next(set_to, 0))
    state = SwitchState(_ports(leaves, background_dscp), tuple(routes), background_dscp=background_dscp)
    # Routes have one form only, so what was read of one says it all.
    _compare(leaves, port_leaves(state), lines)
    _check_yaml(files[YAML], state)
    return state


def _ports(leaves: Leaves, background_dscp: int) -> tuple[PortState, ...]:
    config = nest(leaves)
    interpreter = Interpreter(config, background_dscp)
    ports = tuple(
        interpreter.port_state(name, queues_of(config, name)) for name in config.get("interface", {})
    )
    for port in ports:
        if port.unexpected:
            raise LineError(0, "", f"port {port.name}: {port.unexpected[0]}")
    return ports


def _compare(found: Leaves, needed: Mapping[Path, str], lines: Mapping[Path, int]) -> None:
    if found == needed:
        return
    errors = [
        LineError(lines[path], "", f"does not fit the other lines: {' '.join(path)} {value}")
        for path, value in found.items()
        if needed.get(path) != value
    ]
    missing = (path for path in needed if path not in found)
    errors += (LineError(0, "", f"lacks {' '.join(path)} {needed[path]}") for path in missing)
    raise FileError(errors)


def _check_yaml(text: str, state: SwitchState) -> None:
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    # Our own form is compared as it stands; any other is read as YAML, which takes ten times as long.
    if lines != ["- set:", *yaml_lines(state)] and read_yaml(text) != yaml_tree(leaves_of(state)):
        raise UserInputError(f"says something else than {COMMANDS}", where=YAML)


def read_yaml(text: str) -> Tree:
    """The objects that a document for `nv config patch` sets; raises UserInputError."""
    document = parse_yaml(text, where=YAML)
    match document:
        case [{"set": dict() as tree}] if set(document[0]) == {"set"}:
            return expanded(tree)
        case [{"set": None}] if set(document[0]) == {"set"}:
            return {}
        case _:
            raise UserInputError("is no list of one `set`", where=YAML)
