"""State in the language of NVUE: a file of commands, and the same objects as YAML."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.cumulus.commands import PORT_NAME, set_commands
from mltswitch.targets.cumulus.document import leaves_of, route_path
from mltswitch.targets.cumulus.leaves import Leaves, Path, Tree, nest
from mltswitch.targets.state import RouteState, SwitchState
from mltswitch.targets.template import render_template

COMMANDS: Final = "mltswitch.txt"
YAML: Final = "mltswitch.yaml"
_QUEUES: Final = frozenset({"egress-scheduler", "congestion-control", "egress-shaper"})
_CLASSIFICATION: Final = frozenset({"egress-queue-mapping", "mapping"})


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    commands: list[str]


def render_commands(state: SwitchState, leaves: Leaves) -> str:
    """`nv set` commands of all leaves; of routes, a comment names the port."""
    sections = [
        _section("queues", leaves, lambda path: path[1] in _QUEUES),
        _section("classification", leaves, lambda path: path[1] in _CLASSIFICATION),
        _section("ports", leaves, lambda path: path[0] == "interface"),
    ]
    for port, routes in groupby(state.routes, key=lambda route: route.port):
        sections.append(_Section(f"routes through {port}", set_commands(_routes(routes))))
    return render_template("cumulus/mltswitch.txt.j2", sections=sections)


def _section(title: str, leaves: Leaves, belongs: Callable[[Path], bool]) -> _Section:
    return _Section(title, set_commands({path: value for path, value in leaves.items() if belongs(path)}))


def _routes(routes: Iterable[RouteState]) -> Leaves:
    return {route_path(route): "" for route in routes}


def render_yaml(leaves: Leaves) -> str:
    """The tree for `nv config patch`."""
    return render_template("cumulus/mltswitch.yaml.j2", lines=yaml_lines(yaml_tree(leaves)))


def yaml_lines(tree: Tree) -> list[str]:
    """What stands below `- set:`, a line for each name."""
    lines: list[str] = []
    _add_yaml_lines(tree, "    ", lines)
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


def yaml_tree(leaves: Leaves) -> Tree:
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
    node["type"] = "ipv4-address"


def checked_leaves(state: SwitchState) -> Leaves:
    """Every leaf that the state needs; raises UnsupportedPlanError for what NVUE cannot express."""
    if state.segment_routing is not None:
        raise UnsupportedPlanError(
            "SRv6 of Cumulus Linux is for Spectrum-4 alone, and ends compressed segments only",
            expected="spraying by alias addresses",
        )
    if state.packet_spraying:
        raise UnsupportedPlanError(
            "adaptive routing of Cumulus Linux takes RoCE packets alone",
            expected="spraying by alias addresses",
        )
    for port in state.ports:
        where = f"port {port.name}"
        if not PORT_NAME.fullmatch(port.name):
            raise UnsupportedPlanError("is no name for a port", where=where, expected="swp1 or swp1s0")
        if port.shaped_bps is not None:
            raise UnsupportedPlanError(
                f"ports have the rate of their link here, they are not shaped to {port.shaped_bps} bit/s",
                where=where,
            )
    return leaves_of(state)
