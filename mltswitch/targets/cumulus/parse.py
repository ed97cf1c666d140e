"""Rendered files back into state: nothing but the leaves that this state needs, and both files alike."""

from collections.abc import Mapping

from mltswitch.documents import parse_yaml
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.addresses import ipv4_address, ipv4_network
from mltswitch.targets.cumulus.commands import CommandError, parse_commands
from mltswitch.targets.cumulus.document import leaves_of, port_leaves
from mltswitch.targets.cumulus.interpret import Interpreter, queues_of
from mltswitch.targets.cumulus.leaves import Leaves, Path, Tree, expanded, nest
from mltswitch.targets.cumulus.render import COMMANDS, YAML, yaml_lines, yaml_tree
from mltswitch.targets.state import PortState, RouteState, SwitchState


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render`; raises UserInputError naming the file, and the line or the object."""
    if set(files) != {COMMANDS, YAML}:
        raise UserInputError(
            f"the files are {', '.join(sorted(files)) or 'none'}", expected=f"{COMMANDS} and {YAML}"
        )
    leaves: Leaves = {}
    lines: dict[Path, int] = {}
    routes: list[RouteState] = []
    try:
        for number, port, path, value in parse_commands(files[COMMANDS]):
            if path in lines:
                raise UserInputError(f"{' '.join(path)} is set twice", where=f"{COMMANDS}:{number}")
            lines[path] = number
            if path[0] == "vrf":
                routes.append(_route(path[4], path[6], port, number))
            else:
                leaves[path] = value
    except CommandError as error:
        raise UserInputError(str(error), where=f"{COMMANDS}:{error.number}") from None
    state = SwitchState(_ports(leaves), tuple(routes))
    # Routes have one form only, so what was read of one says it all.
    _compare(leaves, _needed(state.ports), lines)
    _check_yaml(files[YAML], state)
    return state


def _route(prefix: str, hop: str, port: str, number: int) -> RouteState:
    try:
        return RouteState(ipv4_network(prefix), ipv4_address(hop), port)
    except ValueError as error:
        raise UserInputError(str(error), where=f"{COMMANDS}:{number}") from None


def _ports(leaves: Leaves) -> tuple[PortState, ...]:
    config = nest(leaves)
    interpreter = Interpreter(config)
    ports = tuple(
        interpreter.port_state(name, queues_of(config, name)) for name in config.get("interface", {})
    )
    for port in ports:
        if port.unexpected:
            raise UserInputError(f"{port.unexpected[0]}", where=f"{COMMANDS}: port {port.name}")
    return ports


def _needed(ports: tuple[PortState, ...]) -> Mapping[Path, str]:
    try:
        return port_leaves(ports)
    except UnsupportedPlanError as error:
        raise UserInputError(
            error.what, where=f"{COMMANDS}: {error.where}", expected=error.expected
        ) from None


def _compare(found: Leaves, needed: Mapping[Path, str], lines: Mapping[Path, int]) -> None:
    if found == needed:
        return
    for path, value in found.items():
        if needed.get(path) != value:
            raise UserInputError(
                f"does not fit the other lines: {' '.join(path)} {value}", where=f"{COMMANDS}:{lines[path]}"
            )
    for path, value in needed.items():
        if path not in found:
            raise UserInputError(f"lacks {' '.join(path)} {value}", where=COMMANDS)


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
